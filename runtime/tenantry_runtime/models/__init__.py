"""Text decoders of the Kimi and GLM families: shared layers, a thin description per model, the loader."""

from .batch import ForwardBatch as ForwardBatch
from .config import ModelConfig as ModelConfig, Shard as Shard
from .decoder import Decoder as Decoder
from .loader import load_config as load_config, load_model as load_model
from .warm_up import warm_up as warm_up

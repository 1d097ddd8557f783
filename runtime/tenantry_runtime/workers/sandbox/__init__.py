"""Processes that tenants' code runs in, and how they are kept from everything else."""

from .cgroups import GroupLimits
from .errors import InterpreterUnusable, SandboxTooWeak, SpawnFailed, TemplateFailed
from .guest_folder import GuestCode
from .interpreter import Interpreter, find_interpreter
from .level import Layers, Level
from .probe import LayerReport, layers_of, probe, probe_layers
from .spawned import ExitStatus, Spawned
from .spec import IsolateRlimits, TemplateSpec, UidRange
from .templates import Template, open_template

__all__ = [
    "ExitStatus",
    "GroupLimits",
    "GuestCode",
    "Interpreter",
    "InterpreterUnusable",
    "IsolateRlimits",
    "LayerReport",
    "Layers",
    "Level",
    "SandboxTooWeak",
    "SpawnFailed",
    "Spawned",
    "Template",
    "TemplateFailed",
    "TemplateSpec",
    "UidRange",
    "find_interpreter",
    "layers_of",
    "open_template",
    "probe",
    "probe_layers",
]

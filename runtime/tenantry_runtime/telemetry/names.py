"""Names of OpenTelemetry's semantic conventions, as the GenAI group and HTTP have them now.

Written out, as the package that has them marks the GenAI ones as unstable and moves them.
"""

from __future__ import annotations

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
CONVERSATION = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
REQUEST_TOP_K = "gen_ai.request.top_k"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FIRST_CHUNK_S = "gen_ai.response.time_to_first_chunk"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"

ERROR_TYPE = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
RPC_METHOD = "rpc.method"
FAAS_TRIGGER = "faas.trigger"
FAAS_COLD_START = "faas.coldstart"
FAAS_INVOCATION = "faas.invocation_id"


# what follows is this runtime's own, all of it under one prefix: `docs/traces.md` says what each means

TENANT = "tenantry.tenant"
REQUEST = "tenantry.request"
SESSION = "tenantry.session.hash"
CHOICE = "tenantry.choice"
PAGES_CHECK = "tenantry.pages.check"

WORKER = "tenantry.worker"
WORKER_VERSION = "tenantry.worker.version"
WORKER_OUTCOME = "tenantry.worker.outcome"
WORKER_COLD_START_MS = "tenantry.worker.cold_start_ms"

PREFILL_MEMBER = "tenantry.prefill.member"
PREFILL_FORMATS = "tenantry.prefill.formats"
PREFILL_CHUNKS = "tenantry.prefill.chunks"
PREFILL_TOKENS = "tenantry.prefill.tokens"
PREFILL_CACHED_TOKENS = "tenantry.prefill.cached_tokens"

DECODE_MEMBER = "tenantry.decode.member"
DECODE_FORMATS = "tenantry.decode.formats"
DECODE_TOKENS = "tenantry.decode.tokens"
DECODE_STEPS = "tenantry.decode.steps"
DECODE_MEAN_BATCH = "tenantry.decode.mean_batch"
DECODE_PREEMPTIONS = "tenantry.decode.preemptions"

RESERVED_PAGES = "tenantry.reserve.pages"
RESERVED_PRESENT_PAGES = "tenantry.reserve.present_pages"
"""That the decode member had already."""

HANDOFF_DIRECTION = "tenantry.handoff.direction"
HANDOFF_PAGES = "tenantry.handoff.pages"
HANDOFF_BYTES = "tenantry.handoff.bytes"

ROUTE_PHASE = "tenantry.route.phase"
RETRY_MEMBERS = "tenantry.retry.members"
OUTPUT_TOKENS_SO_FAR = "tenantry.output.tokens"
LINK = "tenantry.link"

RETRY_EVENT = "tenantry.retry"
PREEMPTED_EVENT = "tenantry.preempted"

OPERATORS_OWN = frozenset(
    {PREFILL_MEMBER, DECODE_MEMBER, RETRY_MEMBERS, SERVER_ADDRESS, SERVER_PORT}
)
"""Where things run: nothing of a tenant's, and left out of what is sent to one."""

INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
CONTENT = frozenset({INPUT_MESSAGES, OUTPUT_MESSAGES})
"""What users and models said: sent to the tenant alone, and only where the tenant wants it."""

"""What becomes of each key of wrangler's configuration that is not read here.

| table | what a key of it does |
|---|---|
| REFUSED | ends the command, unless its value is empty: the worker would not work |
| UNHEEDED | warns: it changes something that this runtime does not have |
| QUIET | nothing: it is of bundling JavaScript, or of wrangler itself |
| REFUSED_AND_INHERITED | of the refused, those that an environment has from the top level |
| INHERITED | the top level's value holds in an environment that has none of its own |
| TOP_LEVEL | an environment has none |
"""

from __future__ import annotations

_STATE = "keep state in a KV namespace (kv_namespaces), or call a service that you run with fetch"
_FETCH = "call a service of your own with fetch, with its key as a secret"

REFUSED: dict[str, tuple[str, str]] = {
    # key -> what it is, what to do instead
    "ai_search": ("AI Search", _FETCH),
    "ai_search_namespaces": ("AI Search", _FETCH),
    "analytics_engine_datasets": ("Analytics Engine", "print what you count: logs are kept"),
    "artifacts": ("Artifacts", _FETCH),
    "assets": ("static assets", "return files' text from the worker, or serve them elsewhere"),
    "browser": ("Browser Rendering", _FETCH),
    "cloudchamber": ("containers", "run the container yourself and call it with fetch"),
    "containers": ("containers", "run the container yourself and call it with fetch"),
    "d1_databases": ("D1 databases", _STATE),
    "data_blobs": ("data blobs", "put the file beside main: *.bin goes along"),
    "dispatch_namespaces": ("dispatch namespaces", "bind other workers with services"),
    "durable_objects": ("Durable Objects", _STATE),
    "flagship": ("Flagship", "use vars"),
    "hyperdrive": ("Hyperdrive", _FETCH),
    "images": ("Images", _FETCH),
    "media": ("Media Transformations", _FETCH),
    "migrations": ("Durable Objects, which migrations are of,", _STATE),
    "mtls_certificates": ("client certificates", _FETCH),
    "pages_build_output_dir": ("Pages", "write a worker: `workerctl init`"),
    "pipelines": ("Pipelines", _FETCH),
    "queues": ("Queues", "use a cron trigger (triggers.crons) over keys in KV"),
    "r2_buckets": ("R2 buckets", "call an S3-compatible store with fetch; small files fit in KV"),
    "ratelimits": (
        "rate limit bindings",
        "the operator limits tenants; count in KV for your users",
    ),
    "secrets_store_secrets": ("the Secrets Store", "use `workerctl secret put`"),
    "send_email": ("e-mail", _FETCH),
    "site": ("Workers Sites", "return files' text from the worker, or serve them elsewhere"),
    "stream": ("Stream", _FETCH),
    "text_blobs": ("text blobs", "put the file beside main: *.txt, *.html and *.sql go along"),
    "unsafe": ("unsafe bindings", "take them out"),
    "unsafe_hello_world": ("unsafe bindings", "take them out"),
    "vectorize": ("Vectorize", _FETCH),
    "vpc_networks": ("VPC networks", "ask the operator to allow the host for fetch"),
    "vpc_services": ("VPC services", "ask the operator to allow the host for fetch"),
    "wasm_modules": ("WebAssembly modules", "use a Python package"),
    "worker_loaders": ("worker loaders", "bind other workers with services"),
    "workflows": ("Workflows", "use a cron trigger (triggers.crons) over keys in KV"),
}

UNHEEDED: dict[str, str] = {
    "build": "its command is not run: run it before deploying",
    "logfwdr": "logs are not forwarded: `workerctl tail` and `workerctl logs` show them",
    "logpush": "logs are not pushed: `workerctl tail` and `workerctl logs` show them",
    "placement": "workers run where the runtime is",
    "streaming_tail_consumers": "no worker is told of another's logs: use `workerctl tail`",
    "tail_consumers": "no worker is told of another's logs: use `workerctl tail`",
}

QUIET = frozenset(
    (
        "$schema alias base_dir compliance_region define dev find_additional_modules "
        "first_party_worker jsx_factory jsx_fragment keep_names legacy_env minify no_bundle "
        "node_compat preserve_file_names previews send_metrics tsconfig upload_source_maps"
    ).split()
)

REFUSED_AND_INHERITED = frozenset({"assets", "migrations", "pages_build_output_dir", "site"})

INHERITED = frozenset(
    (
        "account_id compatibility_date compatibility_flags isolation limits main name observability "
        "preview_urls python_modules route routes rules triggers workers_dev"
    ).split()
)

TOP_LEVEL = frozenset({"env", "keep_vars", *QUIET, *UNHEEDED})

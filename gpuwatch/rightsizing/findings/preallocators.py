"""Programs that take most of a GPU's memory when they start, whatever they need: which setting limits it.

The memory they hold does not show what they use, so no size follows from it; lowering the setting shows what they need.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from gpuwatch.model.snapshot import Record


class Preallocator(Record, frozen=True, kw_only=True):
    """`programs` and `images`: shell patterns of a process' name and of an image without tag; `setting`: as its
    documentation names it; `default`: what it takes without the setting; `advice`: what to do with it;
    `change`: what to do with `setting`; `server`: it answers requests.
    """

    name: str
    setting: str
    change: str = "lower"
    default: str
    advice: str
    programs: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    server: bool = False


PREALLOCATORS = (
    Preallocator(
        name="vLLM",
        server=True,
        setting="--gpu-memory-utilization",
        default="0.9 of the GPU",
        advice="lower it until `vllm:kv_cache_usage_perc` peaks near 0.9",
        programs=("vllm", "vllm:*", "vllm-*"),
        images=("*vllm*",),
    ),
    Preallocator(
        name="SGLang",
        server=True,
        setting="--mem-fraction-static",
        default="about 0.9 of the GPU",
        advice="lower it until `sglang:token_usage` peaks near 0.9",
        programs=("sglang", "sglang:*", "sglang*"),
        images=("*sglang*",),
    ),
    Preallocator(
        name="Text Generation Inference",
        server=True,
        setting="--cuda-memory-fraction",
        default="all that is free",
        advice="lower it until requests begin to queue",
        programs=("text-generation*",),
        images=("*text-generation-inference*", "*/tgi*"),
    ),
    Preallocator(
        name="TensorRT-LLM",
        server=True,
        setting="kv_cache_config.free_gpu_memory_fraction",
        default="0.9 of what the weights leave",
        advice="lower it until the cache of keys and values is nearly full at the peak",
        programs=("trtllm-*", "trtllm*"),
        images=("*tensorrt-llm*", "*tensorrt_llm*", "*trtllm*"),
    ),
    Preallocator(
        name="Triton Inference Server",
        server=True,
        setting="--cuda-memory-pool-byte-size",
        default="as each backend does",
        advice="its backends have settings of their own: look which model takes it",
        programs=("tritonserver",),
        images=("*tritonserver*",),
    ),
    Preallocator(
        name="LMDeploy",
        server=True,
        setting="--cache-max-entry-count",
        default="0.8 of what the weights leave",
        advice="lower it until requests begin to queue",
        programs=("lmdeploy*",),
        images=("*lmdeploy*",),
    ),
    Preallocator(
        name="JAX",
        setting="XLA_PYTHON_CLIENT_MEM_FRACTION",
        default="0.75 of the GPU",
        advice="or set XLA_PYTHON_CLIENT_PREALLOCATE=false for a day, to see what it needs",
        images=("*jax*", "*/alphafold*"),
    ),
    Preallocator(
        name="TensorFlow",
        setting="TF_FORCE_GPU_ALLOW_GROWTH",
        change="set",
        default="nearly all of the GPU",
        advice="set it to true for a day, to see what it needs",
        programs=("tensorflow_mode*",),
        images=("*tensorflow*",),
    ),
    Preallocator(
        name="RAPIDS memory manager",
        setting="--rmm-pool-size",
        default="half of the GPU, where a pool is made",
        advice="make it smaller (in code: initial_pool_size of rmm.reinitialize)",
        programs=("dask-cuda*",),
        images=("*rapidsai*",),
    ),
)
"""The first that matches counts: a server before the framework it may be built on."""

SERVERS = (
    *("vllm*", "sglang*", "text-generation*", "text-embeddings*", "trtllm-serve*", "tritonserver", "lmdeploy*"),
    *("ollama*", "llama-server", "torchserve*", "tensorflow_mode*", "tf_serving*", "mlserver*", "bentoml*"),
    *("uvicorn*", "gunicorn*", "hypercorn*", "ray::serve*", "ray::proxyactor*", "nginx*", "nim-*"),
)
"""Names of programs that answer requests, whatever kind of owner started them."""


def preallocator(programs: Iterable[str], image: str | None) -> Preallocator | None:
    """By what runs, else by the image. None: unknown. `programs`: names without arguments, with or without a path."""
    names = _names(programs)
    for each in PREALLOCATORS:
        if any(fnmatchcase(name, pattern) for name in names for pattern in each.programs):
            return each
    path, _, last = (image or "").partition("@")[0].rpartition("/")  # a port of the registry is no tag
    plain = f"{path}/{last.partition(':')[0]}".lstrip("/").lower()
    return next((each for each in PREALLOCATORS if any(fnmatchcase(plain, like) for like in each.images)), None)


def is_server(programs: Iterable[str], image: str | None) -> bool:
    """Whether any of the programs answers requests, or the image is that of a server in PREALLOCATORS."""
    if any(fnmatchcase(name, pattern) for name in _names(programs) for pattern in SERVERS):
        return True
    found = preallocator((), image)
    return found is not None and found.server


def _names(programs: Iterable[str]) -> list[str]:
    return [name.rsplit("/", 1)[-1].lower() for name in programs]

"""The settings of NVIDIA's own runtime: they hold for every container it starts."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.containers import runtime_config, way
from gpuwatch.diagnose.model import CheckStage

OPERATOR_PODS = "kubectl -n gpu-operator get pods -o wide --field-selector spec.nodeName={node}"


def _toolkit_config(context: CheckContext) -> CheckVerdict:
    """config.toml of NVIDIA's runtime."""
    runtime, config = context.facts.runtime, runtime_config(context.facts)
    settings = runtime.toolkit_config if runtime else None
    if settings is None:
        return skipped("no configuration of NVIDIA's runtime: its defaults hold")
    if settings.error:
        return failed(f"{settings.path} cannot be read: {settings.error}", remedy=REWRITE, commands=RESET_CONFIG)
    mode = f"mode {settings.mode or 'auto'}"
    if not settings.no_cgroups or config is None or way(context.facts, config) == "cdi":
        return passed(mode)
    message = f"no-cgroups = true in {settings.path}: containers see GPUs, but may not open them"
    if context.facts.kubelet and context.facts.kubelet.present:
        return failed(message)
    return warned(f"{message}, unless they are rootless")


REWRITE = (
    "The nvidia runtime reads this file whenever a container starts, and none starts while it is broken. Put it right, "
    "or write the default anew; with the GPU operator restart the toolkit pod, which writes its own."
)
RESET_CONFIG = ("nvidia-ctk config default --output=/etc/nvidia-container-runtime/config.toml", OPERATOR_PODS)

SETTINGS: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        id="T06",
        stage=CheckStage.RUNTIME,
        title="NVIDIA's runtime may give containers access to GPUs",
        how="config.toml of nvidia-container-runtime: readable, no-cgroups",
        failure="no-cgroups = true in /etc/nvidia-container-runtime/config.toml: containers see GPUs, but may not "
        "open them",
        remedy="no-cgroups is for rootless containers only. Switch it off; containers started from then on are well.",
        commands=("nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place",),
        judge=_toolkit_config,
        needs=("T01",),
        reads=("runtime",),
    ),
)

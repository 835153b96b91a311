# gpuwatch for linux/amd64 and linux/arm64: `docker buildx build --platform linux/amd64,linux/arm64 .`
# glibc on purpose: the driver's libraries that NVIDIA's runtime puts into a container need it, so there is no Alpine.
# A tag may point to another image tomorrow. What is released is built with a digest (docs/machines.md):
# --build-arg BASE=python:3.13-slim-bookworm@sha256:...
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
RUN python3 -m venv /opt/gpuwatch && python3 -m venv /builder
ARG PINNED="--no-cache-dir --no-compile --require-hashes --no-deps --only-binary :all:"
COPY requirements.lock requirements-build.lock ./
RUN /opt/gpuwatch/bin/python -m pip install ${PINNED} -r requirements.lock \
 && /builder/bin/python -m pip install ${PINNED} -r requirements-build.lock
COPY pyproject.toml README.md LICENSE NOTICE scripts/sbom ./
COPY gpuwatch gpuwatch
COPY docs/runbooks docs/runbooks
RUN /builder/bin/hatchling build --target wheel --directory /wheel \
 && /opt/gpuwatch/bin/python -m pip install --no-cache-dir --no-compile --no-deps --no-index /wheel/*.whl \
 && /opt/gpuwatch/bin/python -m pip check \
 # of the Kubernetes client gpuwatch loads configuration and connections: not the models and methods of each API, and not a
 # second client, for asyncio, with what only that one needs; 140 MB
 && /opt/gpuwatch/bin/python -m pip uninstall --quiet --yes aiohttp aiohttp-retry aiohappyeyeballs aiosignal attrs frozenlist \
    multidict propcache yarl pip setuptools \
 && rm -rf /opt/gpuwatch/lib/python3*/site-packages/kubernetes/aio /opt/gpuwatch/lib/python3*/site-packages/kubernetes/client/api \
 && find /opt/gpuwatch/lib/python3*/site-packages/kubernetes/client/models -type f ! -name '__init__*' -delete \
 # by contents and not by time, so that two builds give the same image; nobody changes a file in it
 && python3 -m compileall -q -j0 --invalidation-mode unchecked-hash /opt/gpuwatch/lib/python3*/site-packages \
 && python3 sbom /opt/gpuwatch/lib/python3*/site-packages > /opt/gpuwatch/sbom.cdx.json \
 # for nobody, and for a root without capabilities: as in /tmp each may write, and neither replaces what is the other's, so that
 # a volume below it is safe, too; a new volume takes these over
 && install --directory --mode=1777 /rootfs/var/lib/gpuwatch /rootfs/run/gpuwatch

FROM ${BASE}
LABEL org.opencontainers.image.title="gpuwatch" \
      org.opencontainers.image.description="One node agent that exports, judges and tunes NVIDIA GPUs" \
      org.opencontainers.image.source="https://github.com/gpuwatch/gpuwatch" \
      org.opencontainers.image.licenses="Apache-2.0"
# Nobody in this image becomes somebody else.
RUN find / -xdev -type f -perm /6000 -exec chmod ug-s {} +
COPY --from=build /opt/gpuwatch /opt/gpuwatch
COPY --from=build /rootfs /
# One arena of malloc: Python runs one thread at a time, and each further arena keeps memory for itself.
ENV PATH=/opt/gpuwatch/bin:$PATH \
    MALLOC_ARENA_MAX=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# Enough for the simulator. On GPUs the deployment says uid 0, without any capability: the kubelet's socket is root's.
USER 65532:65532
EXPOSE 9400 9401 9402
ENTRYPOINT ["gpuwatch"]
CMD ["agent"]

# gpuwatch for linux/amd64 and linux/arm64: `docker buildx build --platform linux/amd64,linux/arm64 .`
# glibc on purpose: the driver's libraries that NVIDIA's runtime puts into a container need it, so there is no Alpine.
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
RUN python3 -m venv /opt/gpuwatch
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY gpuwatch gpuwatch
RUN /opt/gpuwatch/bin/python -m pip install --no-cache-dir . \
 && /opt/gpuwatch/bin/python -m pip uninstall --quiet --yes pip setuptools \
 # a second Kubernetes client, for asyncio, which nobody here uses: 68 MB
 && rm -rf /opt/gpuwatch/lib/python3*/site-packages/kubernetes/aio \
 # for nobody, and for a root without capabilities, which is no more than its group: a new volume takes these over
 && install --directory --owner=65532 --group=0 --mode=0775 /rootfs/var/lib/gpuwatch /rootfs/run/gpuwatch

FROM ${BASE}
LABEL org.opencontainers.image.title="gpuwatch" \
      org.opencontainers.image.description="One node agent that exports, judges and tunes NVIDIA GPUs" \
      org.opencontainers.image.source="https://github.com/gpuwatch/gpuwatch" \
      org.opencontainers.image.licenses="Apache-2.0"
# Nobody in this image becomes somebody else.
RUN find / -xdev -type f -perm /6000 -exec chmod ug-s {} +
COPY --from=build /opt/gpuwatch /opt/gpuwatch
COPY --from=build /rootfs /
ENV PATH=/opt/gpuwatch/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# Enough for the simulator. On GPUs the deployment says uid 0, without any capability: the kubelet's socket is root's.
USER 65532:65532
EXPOSE 9400 9401 9402
ENTRYPOINT ["gpuwatch"]
CMD ["agent"]

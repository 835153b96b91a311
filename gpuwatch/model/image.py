"""Names of container images as they may be kept and shown."""

import re

_DIGEST = re.compile(r"@[a-z0-9+._-]+:[0-9a-fA-F]{32,}$")
_SCHEME = re.compile(r"^[a-z-]+://")
_USER = re.compile(r"^[^/]*@")


def plain_image(image: str) -> str:
    """Without scheme, digest and the registry's user: `docker-pullable://u:p@reg/a:1@sha256:...` is `reg/a:1`."""
    return _USER.sub("", _DIGEST.sub("", _SCHEME.sub("", image)))

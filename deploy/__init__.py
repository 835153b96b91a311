"""How gpuwatch is installed: manifests for Kubernetes, a Helm chart, units for bare machines."""

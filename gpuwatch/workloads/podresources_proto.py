"""The kubelet's pod-resources API (k8s.io/kubelet/pkg/apis/podresources/v1/api.proto): the part that gpuwatch reads."""

from gpuwatch.workloads.wire import Schema

SERVICE = "v1.PodResourcesLister"

# fields in the order of api.proto
SCHEMA: Schema = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": ((1, "pod_resources", "PodResources*"),),
    "AllocatableResourcesRequest": (),
    "AllocatableResourcesResponse": ((1, "devices", "ContainerDevices*"),),
    "PodResources": ((1, "name", "string"), (2, "namespace", "string"), (3, "containers", "ContainerResources*")),
    "ContainerResources": (
        (1, "name", "string"),
        (2, "devices", "ContainerDevices*"),
        (5, "dynamic_resources", "DynamicResource*"),
    ),
    "ContainerDevices": ((1, "resource_name", "string"), (2, "device_ids", "string*")),
    "DynamicResource": (
        (2, "claim_name", "string"),
        (3, "claim_namespace", "string"),
        (4, "claim_resources", "ClaimResource*"),
    ),
    "ClaimResource": (
        (1, "cdi_devices", "CDIDevice*"),
        (2, "driver_name", "string"),  # this and the next two since Kubernetes 1.31
        (3, "pool_name", "string"),
        (4, "device_name", "string"),
    ),
    "CDIDevice": ((1, "name", "string"),),
}

# rpc -> request, response
METHODS = {
    "List": ("ListPodResourcesRequest", "ListPodResourcesResponse"),
    "GetAllocatableResources": ("AllocatableResourcesRequest", "AllocatableResourcesResponse"),
}

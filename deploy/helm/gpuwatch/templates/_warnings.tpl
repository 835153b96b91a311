{{/* A YAML list of what is allowed but probably not meant: what, why, next step. */}}
{{- define "gpuwatch.warnings" -}}
{{- $simulated := include "gpuwatch.simulated" . }}
{{- $mode := include "gpuwatch.remediation.mode" . }}
{{- $drains := include "gpuwatch.drains" . }}
{{- $connected := lookup "v1" "Namespace" "" "default" }}
{{- $labels := dig "metadata" "labels" (dict) (lookup "v1" "Namespace" "" .Release.Namespace) }}
{{- $level := get $labels "pod-security.kubernetes.io/enforce" }}
{{- $api := .Capabilities.APIVersions }}
{{- $runtime := .Values.runtimeClassName }}
{{- $warnings := list }}
{{- if and $connected (ne $level "privileged") (not $simulated) }}
{{- $warnings = append $warnings (printf "the namespace %s has no label pod-security.kubernetes.io/enforce=privileged: where pods are checked, hostPath volumes are refused; run: kubectl label --overwrite namespace %s pod-security.kubernetes.io/enforce=privileged" .Release.Namespace .Release.Namespace) }}
{{- end }}
{{- if not (or $runtime .Values.agent.privileged $simulated) }}
{{- $warnings = append $warnings "runtimeClassName is empty: the driver's library is in the pods only where the node's default runtime adds it; if gpuwatch finds no driver, set runtimeClassName=nvidia" }}
{{- end }}
{{- if and $runtime $connected (not $simulated) (not (lookup "node.k8s.io/v1" "RuntimeClass" "" $runtime)) }}
{{- $warnings = append $warnings (printf "there is no RuntimeClass %s: no pod can be made; install NVIDIA's container toolkit or GPU operator, or set runtimeClassName=\"\" where the default runtime is NVIDIA's" $runtime) }}
{{- end }}
{{- if not (or .Values.nvidia.visibleDevices .Values.agent.privileged $simulated) }}
{{- $warnings = append $warnings "nvidia.visibleDevices is empty: NVIDIA's runtime gives the pods no GPU; set nvidia.visibleDevices=all" }}
{{- end }}
{{- if not (or (dig "agent" "wait_for_driver" false .Values.config) $simulated) }}
{{- $warnings = append $warnings "config.agent.wait_for_driver is off: where there is no driver yet the pod ends and is started again and again; set it to true" }}
{{- end }}
{{- if not (or .Values.hostPaths.kubelet $simulated) }}
{{- $warnings = append $warnings "hostPaths.kubelet is empty: which pod has which GPU stays unknown, in metrics, alerts and decisions; set it to the kubelet's folder" }}
{{- end }}
{{- if and (dig "metrics" "processes" false .Values.config) (not .Values.processes.enabled) }}
{{- $warnings = append $warnings "config.metrics.processes is set without processes.enabled: without the host's process ids the driver tells of no process; set processes.enabled=true" }}
{{- end }}
{{- $metrics := dig "metrics" (dict) .Values.config }}
{{- if and (or $metrics.pod_labels $metrics.pod_annotations $metrics.node_labels) (not (include "gpuwatch.consents.wanted" .)) }}
{{- $warnings = append $warnings "config.metrics has labels of pods or nodes exported, and nothing reads them: the agent has no API token; set consents.enabled=true" }}
{{- end }}
{{- if and (ne $mode "off") (not (include "gpuwatch.tolerated" .)) }}
{{- $warnings = append $warnings "tolerations do not tolerate gpuwatch.io/gpu-fault: no new pod of gpuwatch starts on a node that it has tainted, so nothing gives the node back; add {key: gpuwatch.io/gpu-fault, operator: Exists}" }}
{{- end }}
{{- if and (eq $mode "enforce") (not (include "gpuwatch.guarded" .)) }}
{{- $warnings = append $warnings (printf "Kubernetes %s cannot keep the remediator's token to its own Node: whoever steals it from one node can change all, and with drain evict every pod; upgrade to 1.30 or later" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- if and (eq $mode "enforce") $drains (not (include "gpuwatch.remediation.drain" .)) }}
{{- $warnings = append $warnings (printf "the policy says drain for %s, and the remediator has no right to: nodes are tainted and pods stay; set remediation.drain=true" $drains) }}
{{- end }}
{{- if and .Values.remediation.drain (not $drains) }}
{{- $warnings = append $warnings "remediation.drain gives the right to evict the GPU pods of the own node, and no check or XID in config.remediation says drain; leave it out" }}
{{- end }}
{{- if and .Values.podMonitor.enabled (not ($api.Has "monitoring.coreos.com/v1/PodMonitor")) }}
{{- $warnings = append $warnings "podMonitor.enabled is set, and the cluster knows no PodMonitor: this release cannot be installed; install the Prometheus operator first" }}
{{- end }}
{{- if and .Values.prometheusRule.enabled (not ($api.Has "monitoring.coreos.com/v1/PrometheusRule")) }}
{{- $warnings = append $warnings "prometheusRule.enabled is set, and the cluster knows no PrometheusRule: this release cannot be installed; install the Prometheus operator first" }}
{{- end }}
{{- if and .Values.prometheusRule.enabled (not .Values.podMonitor.enabled) }}
{{- $warnings = append $warnings "prometheusRule.enabled is set without podMonitor.enabled: the alerts look for jobs called gpuwatch and gpuwatch-remediator, and for a label node; see that your scrape configuration makes them" }}
{{- end }}
{{ toYaml $warnings }}
{{- end }}

{{/* Which nodes get a pod, after "every node". */}}
{{- define "gpuwatch.placed" -}}
{{- $selected := list }}
{{- if not (include "gpuwatch.simulated" .) }}
{{- range $key, $value := .Values.nodeSelector }}
{{- $selected = append $selected (printf "%s=%s" $key $value) }}
{{- end }}
{{- end }}
{{- if dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "" .Values.affinity }}
{{- $selected = append $selected "what affinity.nodeAffinity requires" }}
{{- end }}
{{- if $selected }} with {{ join " and " $selected }}{{ else }}, with or without a GPU{{ end }}
{{- end }}

{{/* The checks and XIDs whose response is `drain`. */}}
{{- define "gpuwatch.drains" -}}
{{- $drains := list }}
{{- if .Values.remediation.migrate }}
{{- $drains = append $drains "each fault that taints" }}
{{- end }}
{{- range $kind := list "checks" "xids" }}
{{- range $key, $response := dig "remediation" $kind (dict) $.Values.config }}
{{- if eq $response "drain" }}
{{- $drains = append $drains $key }}
{{- end }}
{{- end }}
{{- end }}
{{- if dig "remediation" "restart_plugin" "" .Values.config }}
{{- $drains = append $drains "restart_plugin" }}
{{- end }}
{{- join ", " $drains }}
{{- end }}

{{/* Whether a toleration fits the taint that gpuwatch sets. */}}
{{- define "gpuwatch.tolerated" -}}
{{- $effect := dig "remediation" "effect" "NoSchedule" .Values.config }}
{{- range .Values.tolerations }}
{{- $key := .key | default "" }}
{{- if and (eq (.operator | default "Equal") "Exists") (has $key (list "" "gpuwatch.io/gpu-fault")) (has (.effect | default "") (list "" $effect)) }}true{{ end }}
{{- end }}
{{- end }}

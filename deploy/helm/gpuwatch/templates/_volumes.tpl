{{/* What the agent sees of the host: one list, of which its mounts and the pod's volumes are made. */}}
{{- define "gpuwatch.hostMounts" -}}
{{- $processes := .Values.processes.enabled }}
{{- $remediates := ne (include "gpuwatch.remediation.mode" .) "off" }}
{{- $mounts := list }}
{{- if not (include "gpuwatch.simulated" .) }}
{{- /* which pod has which GPU */}}
{{- with .Values.hostPaths.kubelet }}
{{- $mounts = append $mounts (dict "name" "pod-resources" "mountPath" "/var/lib/kubelet/pod-resources" "path" (printf "%s/pod-resources" .)) }}
{{- end }}
{{- /* to be sure that a Node of this name is this machine */}}
{{- $mounts = append $mounts (dict "name" "machine-id" "mountPath" "/etc/machine-id" "path" .Values.hostPaths.machineId "type" "File") }}
{{- /* names only, no log is read: they tell whose pod a process is, and which pod an Event is about */}}
{{- if or $processes $remediates }}
{{- $mounts = append $mounts (dict "name" "pod-logs" "mountPath" "/var/log/pods" "path" "/var/log/pods") }}
{{- end }}
{{- if $processes }}
{{- $mounts = append $mounts (dict "name" "container-logs" "mountPath" "/var/log/containers" "path" "/var/log/containers") }}
{{- end }}
{{- end }}
{{- toYaml $mounts }}
{{- end }}

{{- define "gpuwatch.volumes" -}}
{{- $simulated := include "gpuwatch.simulated" . }}
- name: config
  configMap:
    name: {{ include "gpuwatch.fullname" . }}
- name: run  # the agent's socket; memory, so that it never outlives the pod
  emptyDir:
    medium: Memory
    sizeLimit: {{ eq $simulated "true" | ternary "64Mi" "16Mi" }}
- name: state  # events and open findings survive a new pod
  {{- if $simulated }}
  emptyDir: {}
  {{- else }}
  hostPath:
    path: {{ .Values.hostPaths.state }}
    type: DirectoryOrCreate
  {{- end }}
{{- range include "gpuwatch.hostMounts" . | fromYamlArray }}
- name: {{ .name }}
  hostPath:
    path: {{ .path }}
    type: {{ .type | default "Directory" }}
{{- end }}
{{- if include "gpuwatch.consents.wanted" . }}
- name: consents  # all that goes from the one with the token to the others
  emptyDir:
    medium: Memory
    sizeLimit: 16Mi
{{- end }}
{{- if .Values.progress.enabled }}
- name: progress  # pods that count mount it, too
  hostPath:
    path: /run/gpuwatch-progress
    type: DirectoryOrCreate
{{- end }}
{{- if or (ne (include "gpuwatch.remediation.mode" .) "off") (include "gpuwatch.consents.wanted" .) }}
- name: token  # of the remediator and of consents: the pod mounts none
  projected:
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                apiVersion: v1
                fieldPath: metadata.namespace
{{- end }}
{{- with .Values.web.secret }}
- name: web
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

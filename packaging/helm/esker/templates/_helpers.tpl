{{- define "esker.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "esker.selector" -}}
app.kubernetes.io/name: esker
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "esker.labels" -}}
{{ include "esker.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The domain of the names of pods. */}}
{{- define "esker.domain" -}}
{{ include "esker.name" . }}-nodes.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* The client addresses of all nodes, in the order of their numbers. */}}
{{- define "esker.cluster" -}}
{{- $addresses := list -}}
{{- range $ordinal := until (int .Values.replicas) -}}
{{- $pod := printf "%s-%d" (include "esker.name" $) $ordinal -}}
{{- $addresses = append $addresses (printf "%s.%s:8080" $pod (include "esker.domain" $)) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}

{{/* A probe of a path, for a list of the scope and the path. */}}
{{- define "esker.probe" -}}
{{- $tls := (index . 0).Values.tls -}}
{{- if and $tls.secretName $tls.clientCertificates (not $tls.plain) -}}
tcpSocket:
  port: clients
{{- else -}}
httpGet:
  path: {{ index . 1 }}
  port: clients
  scheme: {{ if and $tls.secretName (not $tls.plain) }}HTTPS{{ else }}HTTP{{ end }}
{{- end -}}
{{- end -}}

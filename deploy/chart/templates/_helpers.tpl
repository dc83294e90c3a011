{{/* At most 46 characters: names of pods are this and "-", ten of the ReplicaSet, and "-" and five, in 63. */}}
{{- define "tfs-proxy.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 46 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | replace "." "-" | trunc 46 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What never changes: a Deployment's selector can't. Pods have these alone, so that a new chart restarts none. */}}
{{- define "tfs-proxy.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "tfs-proxy.podLabels" -}}
{{- range $name, $value := merge dict (.Values.podLabels | default dict) (.Values.commonLabels | default dict) }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "tfs-proxy.labels" -}}
{{ include "tfs-proxy.selectorLabels" . }}
{{ include "tfs-proxy.moreLabels" . }}
{{- end -}}

{{/* The Job's pods are none that the Service or the Deployment selects. */}}
{{- define "tfs-proxy.cacheLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: model-cache
{{- end -}}

{{- define "tfs-proxy.moreLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tfs-proxy.variant" -}}
{{- .Values.image.variant | default (ternary "gpu" "cpu" (gt (int .Values.gpu.count) 0)) -}}
{{- end -}}

{{- define "tfs-proxy.image" -}}
{{- $tag := .Values.image.tag | default (printf "v%s-%s" .Chart.AppVersion (include "tfs-proxy.variant" .)) -}}
{{- .Values.image.repository }}:{{ $tag }}{{ with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- define "tfs-proxy.serviceAccountName" -}}
{{- $own := ternary (include "tfs-proxy.fullname" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $own -}}
{{- end -}}

{{/* A number as a variable has it: Helm reads 100000000 as 1e+08. */}}
{{- define "tfs-proxy.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}{{ printf "%.0f" . }}{{- else -}}{{ toString . }}{{- end -}}
{{- end -}}

{{- define "tfs-proxy.settings" -}}
{{- range $name, $value := .Values.settings }}
- name: {{ $name | quote }}
  value: {{ include "tfs-proxy.text" $value | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tfs-proxy.envFrom" -}}
{{- with .Values.model.credentials }}
{{- if .secretName }}
- secretRef:
    name: {{ .secretName | quote }}
    optional: {{ .optional }}
{{- end }}
{{- end }}
{{- with .Values.envFrom }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What the server's pods and the Job's have in common. */}}
{{- define "tfs-proxy.podSpec" -}}
serviceAccountName: {{ include "tfs-proxy.serviceAccountName" . | quote }}
# Nothing here talks to the API server. The token for a role in a cloud is another one, and comes nevertheless.
automountServiceAccountToken: false
# A variable for each port of each Service of the namespace, some of which have the names of settings: not here.
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat (.Values.tolerations | default list) (ternary (.Values.gpu.tolerations | default list) list (gt (int .Values.gpu.count) 0)) }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end -}}

{{/* The folder of the cache in which this address lies; pods mount it alone. */}}
{{- define "tfs-proxy.cacheFolder" -}}
{{- printf "%s %s" .Values.model.uri (include "tfs-proxy.text" .Values.model.cache.version) | sha256sum | trunc 12 -}}
{{- end -}}

{{- define "tfs-proxy.cacheClaim" -}}
{{- .Values.model.cache.claimName | default (printf "%s-model" (include "tfs-proxy.fullname" .)) -}}
{{- end -}}

{{/* The container that fills the cache, of a pod or of the Job: with the function by which `serve` itself downloads. */}}
{{- define "tfs-proxy.fetchContainer" -}}
name: fetch-model
image: {{ include "tfs-proxy.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command:
  - python
  - -c
  - |
    {{- .Files.Get "files/fetch.py" | trim | nindent 4 }}
args:
  - {{ .Values.model.uri | quote }}
  - /cache/{{ include "tfs-proxy.cacheFolder" . }}
{{- with include "tfs-proxy.settings" . | trim }}
env:
  {{- . | nindent 2 }}
{{- end }}
{{- with include "tfs-proxy.envFrom" . | trim }}
envFrom:
  {{- . | nindent 2 }}
{{- end }}
resources:
  {{- toYaml .Values.model.cache.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - name: model
    mountPath: /cache
  - name: work
    mountPath: /tmp
  {{- with .Values.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The names that clients ask for, where KEDA's HTTP add-on stands in front. */}}
{{- define "tfs-proxy.hosts" -}}
{{- $own := printf "%s-interceptor" (include "tfs-proxy.fullname" .) -}}
{{- $hosts := list $own (printf "%s.%s" $own .Release.Namespace) (printf "%s.%s.svc" $own .Release.Namespace) -}}
{{- if .Values.ingress.enabled }}{{ $hosts = concat $hosts (.Values.ingress.hosts | default list) }}{{ end -}}
{{- if .Values.route.enabled }}{{ $hosts = concat $hosts (.Values.route.hostnames | default list) }}{{ end -}}
{{- concat $hosts (.Values.autoscaling.kedaHttp.hosts | default list) | uniq | toYaml -}}
{{- end -}}

{{/* networkPolicy.egress.ports, and those of addresses that say where the store is. */}}
{{- define "tfs-proxy.storePorts" -}}
{{- $ports := list -}}
{{- range .Values.networkPolicy.egress.ports }}{{ $ports = append $ports (int .) }}{{ end -}}
{{- $settings := .Values.settings | default dict -}}
{{- range list .Values.model.uri $settings.AWS_ENDPOINT_URL $settings.AWS_ENDPOINT_URL_S3 -}}
{{- with regexFind "^https?://[^/?]+" (toString .) -}}
{{- $ports = append $ports (regexFind "[0-9]+$" (regexFind ":[0-9]+$" .) | default (ternary 443 80 (hasPrefix "https" .)) | int) -}}
{{- end -}}
{{- end -}}
{{- uniq $ports | toJson -}}
{{- end -}}

{{/* Cores, such as 2 and 500m; 0 for none. */}}
{{- define "tfs-proxy.cores" -}}
{{- $text := toString . -}}
{{- if hasSuffix "m" $text }}{{ divf (trimSuffix "m" $text) 1000 }}{{ else }}{{ float64 $text }}{{ end -}}
{{- end -}}

{{/* A size in MiB, such as 5Gi; 0 for one in other units. */}}
{{- define "tfs-proxy.mebibytes" -}}
{{- $text := toString . -}}
{{- if regexMatch "^[0-9]+Ti$" $text -}}{{ mul (trimSuffix "Ti" $text | int) 1048576 }}
{{- else if regexMatch "^[0-9]+Gi$" $text -}}{{ mul (trimSuffix "Gi" $text | int) 1024 }}
{{- else if regexMatch "^[0-9]+Mi$" $text -}}{{ trimSuffix "Mi" $text | int }}
{{- else -}}0{{- end -}}
{{- end -}}

"""The types of core/v1."""

from typing import Final

__all__ = ["CORE"]

_PODS: Final = """
Pod
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:PodSpec status:PodStatus
PodTemplateSpec
  metadata:meta.ObjectMeta spec:PodSpec
PodSpec
  volumes:[Volume]+name initContainers:[Container]+name containers!:[Container]+name
  ephemeralContainers:[EphemeralContainer]+name restartPolicy:str
  terminationGracePeriodSeconds:*int64 activeDeadlineSeconds:*int64 dnsPolicy:str
  nodeSelector:{str}= serviceAccountName:str serviceAccount:str
  automountServiceAccountToken:*bool nodeName:str hostNetwork:bool hostPID:bool hostIPC:bool
  shareProcessNamespace:*bool securityContext:*PodSecurityContext
  imagePullSecrets:[LocalObjectReference]+name hostname:str subdomain:str affinity:*Affinity
  schedulerName:str tolerations:[Toleration] hostAliases:[HostAlias]+ip
  priorityClassName:str priority:*int dnsConfig:*PodDNSConfig
  readinessGates:[PodReadinessGate] runtimeClassName:*str enableServiceLinks:*bool
  preemptionPolicy:*str overhead:{quantity}
  topologySpreadConstraints:[TopologySpreadConstraint]+topologyKey,whenUnsatisfiable
  setHostnameAsFQDN:*bool
  os:*PodOS hostUsers:*bool schedulingGates:[PodSchedulingGate]+name
  resourceClaims:[PodResourceClaim]+name resources:*ResourceRequirements hostnameOverride:*str
PodOS
  name!:str
PodSchedulingGate
  name!:str
PodReadinessGate
  conditionType!:str
PodResourceClaim
  name!:str resourceClaimName:*str resourceClaimTemplateName:*str
PodDNSConfig
  nameservers:[str] searches:[str] options:[PodDNSConfigOption]
PodDNSConfigOption
  name:str value:*str
PodSecurityContext
  seLinuxOptions:SELinuxOptions windowsOptions:WindowsSecurityContextOptions runAsUser:*int64
  runAsGroup:*int64 runAsNonRoot:*bool supplementalGroups:[int64] supplementalGroupsPolicy:*str
  fsGroup:*int64 sysctls:[Sysctl] fsGroupChangePolicy:*str seccompProfile:SeccompProfile
  appArmorProfile:AppArmorProfile seLinuxChangePolicy:*str
Sysctl
  name!:str value!:str
SELinuxOptions
  user:str role:str type:str level:str
WindowsSecurityContextOptions
  gmsaCredentialSpecName:*str gmsaCredentialSpec:*str runAsUserName:*str hostProcess:*bool
SeccompProfile
  type!:str localhostProfile:*str
AppArmorProfile
  type!:str localhostProfile:*str
SecurityContext
  capabilities:Capabilities privileged:*bool seLinuxOptions:SELinuxOptions
  windowsOptions:WindowsSecurityContextOptions runAsUser:*int64 runAsGroup:*int64
  runAsNonRoot:*bool readOnlyRootFilesystem:*bool allowPrivilegeEscalation:*bool procMount:*str
  seccompProfile:SeccompProfile appArmorProfile:AppArmorProfile
Capabilities
  add:[str] drop:[str]
HostAlias
  ip!:str hostnames:[str]
Toleration
  key:str operator:str value:str effect:str tolerationSeconds:*int64
TopologySpreadConstraint
  maxSkew!:int topologyKey!:str whenUnsatisfiable!:str labelSelector:meta.LabelSelectorSpec
  minDomains:*int nodeAffinityPolicy:*str nodeTaintsPolicy:*str matchLabelKeys:[str]
Container
  name!:str image:str command:[str] args:[str] workingDir:str
  ports:[ContainerPort]+containerPort,protocol envFrom:[EnvFromSource] env:[EnvVar]+name
  resources:ResourceRequirements resizePolicy:[ContainerResizePolicy] restartPolicy:*str
  restartPolicyRules:[any] volumeMounts:[VolumeMount]+mountPath
  volumeDevices:[VolumeDevice]+devicePath livenessProbe:Probe readinessProbe:Probe
  startupProbe:Probe lifecycle:Lifecycle terminationMessagePath:str
  terminationMessagePolicy:str imagePullPolicy:str securityContext:SecurityContext
  stdin:bool stdinOnce:bool tty:bool
EphemeralContainer
  name!:str image:str command:[str] args:[str] workingDir:str
  ports:[ContainerPort]+containerPort,protocol envFrom:[EnvFromSource] env:[EnvVar]+name
  resources:ResourceRequirements resizePolicy:[ContainerResizePolicy] restartPolicy:*str
  volumeMounts:[VolumeMount]+mountPath volumeDevices:[VolumeDevice]+devicePath
  livenessProbe:Probe readinessProbe:Probe startupProbe:Probe lifecycle:Lifecycle
  terminationMessagePath:str terminationMessagePolicy:str imagePullPolicy:str
  securityContext:SecurityContext stdin:bool stdinOnce:bool tty:bool targetContainerName:str
ContainerPort
  name:str hostPort:int containerPort!:int protocol:str@TCP hostIP:str
ContainerResizePolicy
  resourceName!:str restartPolicy!:str
EnvFromSource
  prefix:str configMapRef:ConfigMapEnvSource secretRef:SecretEnvSource
ConfigMapEnvSource
  name:str optional:*bool
SecretEnvSource
  name:str optional:*bool
EnvVar
  name!:str value:str valueFrom:EnvVarSource
EnvVarSource
  fieldRef:ObjectFieldSelector resourceFieldRef:ResourceFieldSelector
  configMapKeyRef:ConfigMapKeySelector secretKeyRef:SecretKeySelector fileKeyRef:any
ObjectFieldSelector=
  apiVersion:str fieldPath!:str
ResourceFieldSelector=
  containerName:str resource!:str divisor:quantity
ConfigMapKeySelector=
  name:str key!:str optional:*bool
SecretKeySelector=
  name:str key!:str optional:*bool
ResourceRequirements
  limits:{quantity} requests:{quantity} claims:[ResourceClaim]/name
ResourceClaim
  name!:str request:str
VolumeMount
  name!:str readOnly:bool recursiveReadOnly:*str mountPath!:str subPath:str
  mountPropagation:*str subPathExpr:str
VolumeDevice
  name!:str devicePath!:str
Probe
  exec:ExecAction httpGet:HTTPGetAction tcpSocket:TCPSocketAction grpc:GRPCAction
  initialDelaySeconds:int timeoutSeconds:int periodSeconds:int successThreshold:int
  failureThreshold:int terminationGracePeriodSeconds:*int64
ExecAction
  command:[str]
HTTPGetAction
  path:str port!:ios host:str scheme:str httpHeaders:[HTTPHeader]
HTTPHeader
  name!:str value!:str
TCPSocketAction
  port!:ios host:str
GRPCAction
  port!:int service:*str
SleepAction
  seconds!:int64
Lifecycle
  postStart:LifecycleHandler preStop:LifecycleHandler stopSignal:*str
LifecycleHandler
  exec:ExecAction httpGet:HTTPGetAction tcpSocket:TCPSocketAction sleep:SleepAction
Affinity
  nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity
NodeAffinity
  requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
  preferredDuringSchedulingIgnoredDuringExecution:[PreferredSchedulingTerm]
NodeSelector=
  nodeSelectorTerms!:[NodeSelectorTerm]
NodeSelectorTerm=
  matchExpressions:[NodeSelectorRequirement] matchFields:[NodeSelectorRequirement]
NodeSelectorRequirement
  key!:str operator!:str values:[str]
PreferredSchedulingTerm
  weight!:int preference!:NodeSelectorTerm
PodAffinity
  requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
  preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
PodAntiAffinity
  requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
  preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
PodAffinityTerm
  labelSelector:meta.LabelSelectorSpec namespaces:[str] topologyKey!:str
  namespaceSelector:meta.LabelSelectorSpec matchLabelKeys:[str] mismatchLabelKeys:[str]
WeightedPodAffinityTerm
  weight!:int podAffinityTerm!:PodAffinityTerm
PodStatus
  observedGeneration:int64 phase:str conditions:[PodCondition]+type message:str reason:str
  nominatedNodeName:str hostIP:str hostIPs:[HostIP] podIP:str podIPs:[PodIP]+ip startTime:time
  initContainerStatuses:[ContainerStatus] containerStatuses:[ContainerStatus] qosClass:str
  ephemeralContainerStatuses:[ContainerStatus] resize:str resourceClaimStatuses:[any]/name
  extendedResourceClaimStatus:any
HostIP
  ip!:str
PodIP
  ip!:str
PodCondition
  type!:str observedGeneration:int64 status!:str lastProbeTime:time? lastTransitionTime:time?
  reason:str message:str
ContainerStatus
  name!:str state:ContainerState lastState:ContainerState ready!:bool restartCount!:int
  image!:str imageID!:str containerID:str started:*bool allocatedResources:{quantity}
  resources:ResourceRequirements volumeMounts:[any]/mountPath user:any
  allocatedResourcesStatus:[any]/name
  stopSignal:*str
ContainerState
  waiting:ContainerStateWaiting running:ContainerStateRunning
  terminated:ContainerStateTerminated
ContainerStateWaiting
  reason:str message:str
ContainerStateRunning
  startedAt:time?
ContainerStateTerminated
  exitCode!:int signal:int reason:str message:str startedAt:time? finishedAt:time? containerID:str
Binding
  apiVersion:str kind:str metadata:meta.ObjectMeta target!:ObjectReference
"""

_VOLUMES: Final = """
Volume
  name!:str hostPath:HostPathVolumeSource emptyDir:EmptyDirVolumeSource
  secret:SecretVolumeSource configMap:ConfigMapVolumeSource
  persistentVolumeClaim:PersistentVolumeClaimVolumeSource
  projected:ProjectedVolumeSource downwardAPI:DownwardAPIVolumeSource
  ephemeral:EphemeralVolumeSource csi:CSIVolumeSource image:ImageVolumeSource nfs:any iscsi:any
  gcePersistentDisk:any awsElasticBlockStore:any gitRepo:any glusterfs:any rbd:any
  flexVolume:any cinder:any cephfs:any flocker:any fc:any azureFile:any vsphereVolume:any
  quobyte:any azureDisk:any photonPersistentDisk:any portworxVolume:any scaleIO:any
  storageos:any
HostPathVolumeSource
  path!:str type:*str
EmptyDirVolumeSource
  medium:str sizeLimit:quantity
SecretVolumeSource
  secretName:str items:[KeyToPath] defaultMode:*int optional:*bool
ConfigMapVolumeSource
  name:str items:[KeyToPath] defaultMode:*int optional:*bool
KeyToPath
  key!:str path!:str mode:*int
PersistentVolumeClaimVolumeSource
  claimName!:str readOnly:bool
ProjectedVolumeSource
  sources:[any] defaultMode:*int
DownwardAPIVolumeSource
  items:[any] defaultMode:*int
EphemeralVolumeSource
  volumeClaimTemplate:PersistentVolumeClaimTemplate
PersistentVolumeClaimTemplate
  metadata:meta.ObjectMeta spec!:PersistentVolumeClaimSpec
CSIVolumeSource
  driver!:str readOnly:*bool fsType:*str volumeAttributes:{str}
  nodePublishSecretRef:LocalObjectReference
ImageVolumeSource
  reference:str pullPolicy:str
PersistentVolumeClaim
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:PersistentVolumeClaimSpec
  status:PersistentVolumeClaimStatus
PersistentVolumeClaimSpec
  accessModes:[str] selector:*meta.LabelSelectorSpec resources:VolumeResourceRequirements
  volumeName:str storageClassName:*str volumeMode:*str dataSource:any dataSourceRef:any
  volumeAttributesClassName:*str
VolumeResourceRequirements
  limits:{quantity} requests:{quantity}
PersistentVolumeClaimStatus
  phase:str accessModes:[str] capacity:{quantity} conditions:[PersistentVolumeClaimCondition]+type
  allocatedResources:{quantity} allocatedResourceStatuses:{str}
  currentVolumeAttributesClassName:*str modifyVolumeStatus:any
PersistentVolumeClaimCondition
  type!:str status!:str lastProbeTime:time? lastTransitionTime:time? reason:str message:str
PersistentVolume
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:PersistentVolumeSpec
  status:PersistentVolumeStatus
PersistentVolumeSpec
  capacity:{quantity} accessModes:[str] claimRef:*ObjectReference
  persistentVolumeReclaimPolicy:str storageClassName:str mountOptions:[str] volumeMode:*str
  nodeAffinity:any volumeAttributesClassName:*str hostPath:*HostPathVolumeSource local:any csi:any
  nfs:any iscsi:any gcePersistentDisk:any awsElasticBlockStore:any glusterfs:any rbd:any
  cinder:any cephfs:any fc:any flocker:any flexVolume:any azureFile:any vsphereVolume:any
  quobyte:any azureDisk:any photonPersistentDisk:any portworxVolume:any scaleIO:any storageos:any
PersistentVolumeStatus
  phase:str message:str reason:str lastPhaseTransitionTime:time
"""

_NODES: Final = """
Node
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:NodeSpec status:NodeStatus
NodeSpec
  podCIDR:str podCIDRs:[str]+ providerID:str unschedulable:bool taints:[Taint]
  configSource:any externalID:str
Taint
  key!:str value:str effect!:str timeAdded:time
NodeStatus
  capacity:{quantity} allocatable:{quantity} phase:str conditions:[NodeCondition]+type
  addresses:[NodeAddress]+type daemonEndpoints:NodeDaemonEndpoints nodeInfo:NodeSystemInfo
  images:[ContainerImage] volumesInUse:[str] volumesAttached:[AttachedVolume] config:any
  runtimeHandlers:[any] features:any declaredFeatures:[str]
NodeCondition
  type!:str status!:str lastHeartbeatTime:time? lastTransitionTime:time? reason:str message:str
NodeAddress
  type!:str address!:str
NodeDaemonEndpoints
  kubeletEndpoint:DaemonEndpoint
DaemonEndpoint
  Port!:int
NodeSystemInfo
  machineID!:str systemUUID!:str bootID!:str kernelVersion!:str osImage!:str
  containerRuntimeVersion!:str kubeletVersion!:str kubeProxyVersion!:str operatingSystem!:str
  architecture!:str swap:any
ContainerImage
  names:[str] sizeBytes:int64
AttachedVolume
  name!:str devicePath!:str
"""

_OTHERS: Final = """
Namespace
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:NamespaceSpec status:NamespaceStatus
NamespaceSpec
  finalizers:[str]
NamespaceStatus
  phase:str conditions:[NamespaceCondition]+type
NamespaceCondition
  type!:str status!:str lastTransitionTime:time? reason:str message:str
Service
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:ServiceSpec status:ServiceStatus
ServiceSpec
  ports:[ServicePort]+port,protocol selector:{str}= clusterIP:str clusterIPs:[str] type:str
  externalIPs:[str] sessionAffinity:str loadBalancerIP:str loadBalancerSourceRanges:[str]
  externalName:str externalTrafficPolicy:str healthCheckNodePort:int
  publishNotReadyAddresses:bool sessionAffinityConfig:any ipFamilies:[str] ipFamilyPolicy:*str
  allocateLoadBalancerNodePorts:*bool loadBalancerClass:*str internalTrafficPolicy:*str
  trafficDistribution:*str
ServicePort
  name:str protocol:str@TCP appProtocol:*str port!:int targetPort:ios nodePort:int
ServiceStatus
  loadBalancer:any conditions:[meta.Condition]+type
ConfigMap
  apiVersion:str kind:str metadata:meta.ObjectMeta immutable:*bool data:{str} binaryData:{bytes}
Secret
  apiVersion:str kind:str metadata:meta.ObjectMeta immutable:*bool data:{bytes} stringData:{str}
  type:str
ServiceAccount
  apiVersion:str kind:str metadata:meta.ObjectMeta secrets:[ObjectReference]+name
  imagePullSecrets:[LocalObjectReference] automountServiceAccountToken:*bool
LocalObjectReference=
  name:str
ObjectReference=
  kind:str namespace:str name:str uid:str apiVersion:str resourceVersion:str fieldPath:str
Event
  apiVersion:str kind:str metadata!:meta.ObjectMeta involvedObject!:ObjectReference reason:str
  message:str source:EventSource firstTimestamp:time? lastTimestamp:time? count:int type:str
  eventTime:micro? series:*EventSeries action:str related:*ObjectReference
  reportingComponent!:str reportingInstance!:str
EventSource
  component:str host:str
EventSeries
  count:int lastObservedTime:micro?
"""

CORE: Final = _PODS + _VOLUMES + _NODES + _OTHERS

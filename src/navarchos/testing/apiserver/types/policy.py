"""policy, coordination, events, rbac and storage groups."""

from typing import Final

__all__ = ["TYPES"]

TYPES: Final = {
    "io.k8s.api.policy.v1": """
PodDisruptionBudget
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:PodDisruptionBudgetSpec
  status:PodDisruptionBudgetStatus
PodDisruptionBudgetSpec
  minAvailable:ios selector:*meta.LabelSelectorSpec maxUnavailable:ios
  unhealthyPodEvictionPolicy:*str
PodDisruptionBudgetStatus
  observedGeneration:int64 disruptedPods:{time} disruptionsAllowed!:int currentHealthy!:int
  desiredHealthy!:int expectedPods!:int conditions:[meta.Condition]+type
Eviction
  apiVersion:str kind:str metadata:meta.ObjectMeta deleteOptions:meta.DeleteOptions
""",
    "io.k8s.api.coordination.v1": """
Lease
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:LeaseSpec
LeaseSpec
  holderIdentity:*str leaseDurationSeconds:*int acquireTime:micro renewTime:micro
  leaseTransitions:*int strategy:*str preferredHolder:*str
""",
    "io.k8s.api.events.v1": """
Event
  apiVersion:str kind:str metadata:meta.ObjectMeta eventTime:micro series:*EventSeries
  reportingController:str reportingInstance:str action:str reason:str
  regarding:core.ObjectReference related:*core.ObjectReference note:str type:str
  deprecatedSource:core.EventSource deprecatedFirstTimestamp:time?
  deprecatedLastTimestamp:time? deprecatedCount:int
EventSeries
  count!:int lastObservedTime!:micro
""",
    "io.k8s.api.rbac.v1": """
Role
  apiVersion:str kind:str metadata:meta.ObjectMeta rules:[PolicyRule]
ClusterRole
  apiVersion:str kind:str metadata:meta.ObjectMeta rules:[PolicyRule]
  aggregationRule:*AggregationRule
AggregationRule
  clusterRoleSelectors:[meta.LabelSelectorSpec]
PolicyRule
  verbs!:[str] apiGroups:[str] resources:[str] resourceNames:[str] nonResourceURLs:[str]
RoleBinding
  apiVersion:str kind:str metadata:meta.ObjectMeta subjects:[Subject] roleRef!:RoleRef
ClusterRoleBinding
  apiVersion:str kind:str metadata:meta.ObjectMeta subjects:[Subject] roleRef!:RoleRef
Subject=
  kind!:str apiGroup:str name!:str namespace:str
RoleRef=
  apiGroup!:str kind!:str name!:str
""",
    "io.k8s.api.storage.v1": """
StorageClass
  apiVersion:str kind:str metadata:meta.ObjectMeta provisioner!:str parameters:{str}
  reclaimPolicy:*str mountOptions:[str] allowVolumeExpansion:*bool volumeBindingMode:*str
  allowedTopologies:[any]
VolumeAttachment
  apiVersion:str kind:str metadata:meta.ObjectMeta spec!:VolumeAttachmentSpec
  status:VolumeAttachmentStatus
VolumeAttachmentSpec
  attacher!:str source!:VolumeAttachmentSource nodeName!:str
VolumeAttachmentSource
  persistentVolumeName:*str inlineVolumeSpec:any
VolumeAttachmentStatus
  attached!:bool attachmentMetadata:{str} attachError:any detachError:any
""",
    "io.k8s.api.scheduling.v1": """
PriorityClass
  apiVersion:str kind:str metadata:meta.ObjectMeta value!:int globalDefault:bool description:str
  preemptionPolicy:*str
""",
}

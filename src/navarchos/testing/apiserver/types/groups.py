"""The types of all API groups but core.

A key is the first part of the group's name: `coordination` has the types of coordination.k8s.io.
"""

from collections.abc import Mapping
from typing import Final

__all__ = ["GROUPS"]

GROUPS: Final[Mapping[str, str]] = {
    "meta": """
ObjectMeta
  name:str generateName:str namespace:str selfLink:str uid:str resourceVersion:str
  generation:int64 creationTimestamp:time deletionTimestamp:time
  deletionGracePeriodSeconds:*int64 labels:{str} annotations:{str}
  ownerReferences:[OwnerReference]+uid finalizers:[str]+ managedFields:[ManagedFieldsEntry]
OwnerReference=
  apiVersion!:str kind!:str name!:str uid!:str controller:*bool blockOwnerDeletion:*bool
ManagedFieldsEntry
  manager:str operation:str apiVersion:str time:time fieldsType:str fieldsV1:any subresource:str
ListMeta
  selfLink:str resourceVersion:str continue:str remainingItemCount:*int64
LabelSelectorSpec=
  matchLabels:{str} matchExpressions:[LabelSelectorRequirement]
LabelSelectorRequirement
  key!:str operator!:str values:[str]
Condition
  type!:str status!:str observedGeneration:int64 lastTransitionTime!:time? reason!:str message!:str
DeleteOptions
  apiVersion:str kind:str gracePeriodSeconds:*int64 preconditions:Preconditions
  orphanDependents:*bool propagationPolicy:*str dryRun:[str]
  ignoreStoreReadErrorWithClusterBreakingPotential:*bool
Preconditions
  uid:*str resourceVersion:*str
FieldSelectorRequirement
  key!:str operator!:str values:[str]
""",
    "apps": """
Deployment
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:DeploymentSpec status:DeploymentStatus
DeploymentSpec
  replicas:*int selector!:*meta.LabelSelectorSpec template!:core.PodTemplateSpec
  strategy:DeploymentStrategy~ minReadySeconds:int revisionHistoryLimit:*int paused:bool
  progressDeadlineSeconds:*int
DeploymentStrategy
  type:str rollingUpdate:*RollingUpdateDeployment
RollingUpdateDeployment
  maxUnavailable:ios maxSurge:ios
DeploymentStatus
  observedGeneration:int64 replicas:int updatedReplicas:int readyReplicas:int
  availableReplicas:int unavailableReplicas:int terminatingReplicas:*int
  conditions:[DeploymentCondition]+type collisionCount:*int
DeploymentCondition
  type!:str status!:str lastUpdateTime:time? lastTransitionTime:time? reason:str message:str
ReplicaSet
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:ReplicaSetSpec status:ReplicaSetStatus
ReplicaSetSpec
  replicas:*int minReadySeconds:int selector!:*meta.LabelSelectorSpec template:core.PodTemplateSpec
ReplicaSetStatus
  replicas!:int fullyLabeledReplicas:int readyReplicas:int availableReplicas:int
  terminatingReplicas:*int observedGeneration:int64 conditions:[WorkloadCondition]+type
WorkloadCondition
  type!:str status!:str lastTransitionTime:time? reason:str message:str
StatefulSet
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:StatefulSetSpec status:StatefulSetStatus
StatefulSetSpec
  replicas:*int selector!:*meta.LabelSelectorSpec template!:core.PodTemplateSpec
  volumeClaimTemplates:[core.PersistentVolumeClaim] serviceName!:str podManagementPolicy:str
  updateStrategy:StatefulSetUpdateStrategy revisionHistoryLimit:*int minReadySeconds:int
  persistentVolumeClaimRetentionPolicy:*StatefulSetPersistentVolumeClaimRetentionPolicy
  ordinals:*StatefulSetOrdinals
StatefulSetUpdateStrategy
  type:str rollingUpdate:*RollingUpdateStatefulSetStrategy
RollingUpdateStatefulSetStrategy
  partition:*int maxUnavailable:ios
StatefulSetPersistentVolumeClaimRetentionPolicy
  whenDeleted:str whenScaled:str
StatefulSetOrdinals
  start!:int
StatefulSetStatus
  observedGeneration:int64 replicas!:int readyReplicas:int currentReplicas:int
  updatedReplicas:int currentRevision:str updateRevision:str collisionCount:*int
  conditions:[WorkloadCondition]+type availableReplicas!:int
DaemonSet
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:DaemonSetSpec status:DaemonSetStatus
DaemonSetSpec
  selector!:*meta.LabelSelectorSpec template!:core.PodTemplateSpec
  updateStrategy:DaemonSetUpdateStrategy minReadySeconds:int revisionHistoryLimit:*int
DaemonSetUpdateStrategy
  type:str rollingUpdate:*RollingUpdateDaemonSet
RollingUpdateDaemonSet
  maxUnavailable:ios maxSurge:ios
DaemonSetStatus
  currentNumberScheduled!:int numberMisscheduled!:int desiredNumberScheduled!:int
  numberReady!:int observedGeneration:int64 updatedNumberScheduled:int numberAvailable:int
  numberUnavailable:int collisionCount:*int conditions:[WorkloadCondition]+type
ControllerRevision
  apiVersion:str kind:str metadata:meta.ObjectMeta data:any revision!:int64
""",
    "autoscaling": """Scale
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:ScaleSpec status:ScaleStatus
ScaleSpec
  replicas:int
ScaleStatus
  replicas!:int selector:str
""",
    "batch": """
Job
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:JobSpec status:JobStatus
JobSpec
  parallelism:*int completions:*int activeDeadlineSeconds:*int64 podFailurePolicy:any
  successPolicy:any backoffLimit:*int backoffLimitPerIndex:*int maxFailedIndexes:*int
  selector:*meta.LabelSelectorSpec manualSelector:*bool template!:core.PodTemplateSpec
  ttlSecondsAfterFinished:*int completionMode:*str suspend:*bool podReplacementPolicy:*str
  managedBy:*str
JobStatus
  conditions:[JobCondition]+type= startTime:time completionTime:time active:int succeeded:int
  failed:int terminating:*int completedIndexes:str failedIndexes:*str
  uncountedTerminatedPods:any ready:*int
JobCondition
  type!:str status!:str lastProbeTime:time? lastTransitionTime:time? reason:str message:str
CronJob
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:CronJobSpec status:CronJobStatus
CronJobSpec
  schedule!:str timeZone:*str startingDeadlineSeconds:*int64 concurrencyPolicy:str suspend:*bool
  jobTemplate!:JobTemplateSpec successfulJobsHistoryLimit:*int failedJobsHistoryLimit:*int
JobTemplateSpec
  metadata:meta.ObjectMeta spec:JobSpec
CronJobStatus
  active:[core.ObjectReference] lastScheduleTime:time lastSuccessfulTime:time
""",
    "policy": """
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
    "coordination": """
Lease
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:LeaseSpec
LeaseSpec
  holderIdentity:*str leaseDurationSeconds:*int acquireTime:micro renewTime:micro
  leaseTransitions:*int strategy:*str preferredHolder:*str
""",
    "events": """
Event
  apiVersion:str kind:str metadata:meta.ObjectMeta eventTime:micro series:*EventSeries
  reportingController:str reportingInstance:str action:str reason:str
  regarding:core.ObjectReference related:*core.ObjectReference note:str type:str
  deprecatedSource:core.EventSource deprecatedFirstTimestamp:time?
  deprecatedLastTimestamp:time? deprecatedCount:int
EventSeries
  count!:int lastObservedTime!:micro
""",
    "rbac": """
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
    "storage": """
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
    "scheduling": """
PriorityClass
  apiVersion:str kind:str metadata:meta.ObjectMeta value!:int globalDefault:bool description:str
  preemptionPolicy:*str
""",
    "apiextensions": """
CustomResourceDefinition
  apiVersion:str kind:str metadata:meta.ObjectMeta spec!:CustomResourceDefinitionSpec
  status:CustomResourceDefinitionStatus
CustomResourceDefinitionSpec
  group!:str names!:CustomResourceDefinitionNames scope!:str
  versions!:[CustomResourceDefinitionVersion] conversion:*CustomResourceConversion
  preserveUnknownFields:bool
CustomResourceDefinitionNames
  plural!:str singular:str shortNames:[str] kind!:str listKind:str categories:[str]
CustomResourceDefinitionVersion
  name!:str served!:bool storage!:bool deprecated:bool deprecationWarning:*str
  schema:CustomResourceValidation subresources:CustomResourceSubresources
  additionalPrinterColumns:[CustomResourceColumnDefinition] selectableFields:[SelectableField]
SelectableField
  jsonPath!:str
CustomResourceValidation
  openAPIV3Schema:any
CustomResourceSubresources
  status:any scale:CustomResourceSubresourceScale
CustomResourceSubresourceScale
  specReplicasPath!:str statusReplicasPath!:str labelSelectorPath:*str
CustomResourceColumnDefinition
  name!:str type!:str format:str description:str priority:int jsonPath!:str
CustomResourceConversion
  strategy!:str webhook:any
CustomResourceDefinitionStatus
  conditions:[CustomResourceDefinitionCondition] acceptedNames:CustomResourceDefinitionNames
  storedVersions:[str] observedGeneration:int64
CustomResourceDefinitionCondition
  type!:str status!:str lastTransitionTime:time? reason:str message:str observedGeneration:int64
""",
    "authorization": """
LocalSubjectAccessReview
  apiVersion:str kind:str metadata:meta.ObjectMeta spec!:any status:any
SelfSubjectAccessReview
  apiVersion:str kind:str metadata:meta.ObjectMeta spec!:any status:any
SubjectAccessReview
  apiVersion:str kind:str metadata:meta.ObjectMeta spec!:any status:any
SelfSubjectRulesReview
  apiVersion:str kind:str metadata:meta.ObjectMeta spec!:any status:any
""",
    "authentication": """
TokenRequest
  apiVersion:str kind:str metadata:meta.ObjectMeta spec!:any status:any
TokenReview
  apiVersion:str kind:str metadata:meta.ObjectMeta spec!:any status:any
SelfSubjectReview
  apiVersion:str kind:str metadata:meta.ObjectMeta status:any
""",
}

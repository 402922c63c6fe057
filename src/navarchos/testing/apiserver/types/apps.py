"""apps/v1 and autoscaling/v1: workloads and their scale."""

from typing import Final

__all__ = ["TYPES"]

TYPES: Final = {
    "io.k8s.api.apps.v1": """
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
Scale
  apiVersion:str kind:str metadata:meta.ObjectMeta spec:ScaleSpec status:ScaleStatus
ScaleSpec
  replicas:int
ScaleStatus
  replicas!:int selector:str
""",
}

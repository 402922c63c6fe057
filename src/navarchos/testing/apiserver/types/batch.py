"""batch/v1: jobs."""

from typing import Final

__all__ = ["TYPES"]

TYPES: Final = {
    "io.k8s.api.batch.v1": """
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
}

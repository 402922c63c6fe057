"""meta/v1: what all kinds share."""

from typing import Final

__all__ = ["TYPES"]

TYPES: Final = {
    "io.k8s.apimachinery.pkg.apis.meta.v1": """
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
}

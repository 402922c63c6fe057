"""apiextensions.k8s.io/v1: definitions of custom kinds."""

from typing import Final

__all__ = ["TYPES"]

TYPES: Final = {
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1": """
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
}

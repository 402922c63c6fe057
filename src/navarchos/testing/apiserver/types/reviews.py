"""authentication and authorization reviews: answered, never stored."""

from typing import Final

__all__ = ["TYPES"]

TYPES: Final = {
    "io.k8s.api.authorization.v1": """
LocalSubjectAccessReview
  apiVersion:str kind:str metadata:meta.ObjectMeta spec!:any status:any
SelfSubjectAccessReview
  apiVersion:str kind:str metadata:meta.ObjectMeta spec!:any status:any
SubjectAccessReview
  apiVersion:str kind:str metadata:meta.ObjectMeta spec!:any status:any
SelfSubjectRulesReview
  apiVersion:str kind:str metadata:meta.ObjectMeta spec!:any status:any
""",
    "io.k8s.api.authentication.v1": """
TokenRequest
  apiVersion:str kind:str metadata:meta.ObjectMeta spec!:any status:any
TokenReview
  apiVersion:str kind:str metadata:meta.ObjectMeta spec!:any status:any
SelfSubjectReview
  apiVersion:str kind:str metadata:meta.ObjectMeta status:any
""",
}

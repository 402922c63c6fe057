"""Which objects of a kind an informer is about."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from navarchos.client.selectors import Selector
from navarchos.informers.lister import labels_of
from navarchos.meta import identity_of

__all__ = ["Scope"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects of a kind.

    Attributes:
        namespace: Empty for all.
        label_selector: As in `kubectl -l`; empty for all.
        field_selector: Such as `spec.nodeName=node-1`; empty for all.
    """

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""

    def __str__(self) -> str:
        parts = [self.namespace and f"in {self.namespace}", self.label_selector]
        return " ".join(part for part in (*parts, self.field_selector) if part)

    def membership(self) -> Callable[[object], bool]:
        """Return a function that tells whether a watch of this scope shows an object.

        It goes by namespace and labels. Fields only the server can select by, and
        labels only where the object's type lists them; both count as matching else.

        Raises:
            ConfigError: The label selector cannot be read.
        """
        selector = Selector.parse(self.label_selector)

        def is_member(obj: object) -> bool:
            if self.namespace and identity_of(obj).namespace != self.namespace:
                return False
            labels = labels_of(obj)
            return labels is None or selector.matches(labels)

        return is_member

"""One key of a ConfigMap or a Secret, read uncached."""

from anima.model.errors import NotFound, Refusal
from anima.model.persona import SensitiveText
from anima.model.reasons import Reason
from anima.model.resources import ConfigMap, KeyReference, Secret
from anima.stores.ports import Catalog


async def read_key(
    catalog: Catalog,
    kind: type[ConfigMap] | type[Secret],
    namespace: str,
    reference: KeyReference,
    where: str,
    reason: Reason,
) -> SensitiveText:
    """Return the text of a key.

    Args:
        catalog: where the object is.
        kind: of the object.
        namespace: of whoever refers to it; no other is read.
        reference: names object and key.
        where: the field that refers to it, for messages.
        reason: of the refusal.

    Raises:
        Refusal: the object or the key is missing.
    """
    subject = f"{where}: {kind.__name__} {namespace}/{reference.name}"
    try:
        found = await catalog.get(kind, namespace, reference.name)
    except NotFound:
        raise Refusal(reason, f"{subject} does not exist") from None
    texts = found.data if isinstance(found, ConfigMap) else found.string_data
    if reference.key not in texts:
        raise Refusal(reason, f"{subject} has no key {reference.key}")
    return texts[reference.key]

"""Checking, before polling, that the server knows our search attributes.

An attribute that is not registered would fail every workflow task that sets it.
"""

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from anima.model.errors import Unavailable
from anima.model.wire import INT_ATTRIBUTES, SearchAttribute


async def check_attributes(client: Client) -> None:
    """Compare the registered search attributes with the product's list.

    Raises:
        Unavailable: some are missing or of another type; the message says how to
            register them.
    """
    request = ListSearchAttributesRequest(namespace=client.namespace)
    known = (await client.operator_service.list_search_attributes(request)).custom_attributes
    missing = [name for name in SearchAttribute if known.get(str(name)) != _type(name)]
    if missing:
        flags = " ".join(f"--name {name} --type {_type_name(name)}" for name in missing)
        raise Unavailable(
            f"Temporal namespace {client.namespace} lacks search attributes; "
            f"run: temporal operator search-attribute create {flags}"
        )


def _type(name: SearchAttribute) -> IndexedValueType.ValueType:
    if name in INT_ATTRIBUTES:
        return IndexedValueType.INDEXED_VALUE_TYPE_INT
    return IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD


def _type_name(name: SearchAttribute) -> str:
    return "Int" if name in INT_ATTRIBUTES else "Keyword"

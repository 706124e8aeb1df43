"""Routes of the Catalog: Agents, Providers, ConfigMaps and Secrets, for people."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response, status
from starlette.responses import JSONResponse

from anima.model.agent import Agent
from anima.model.errors import NotFound, Refusal
from anima.model.manifest import KINDS, Kind, parse_resource
from anima.model.names import Name
from anima.model.problems import Problem, summary
from anima.model.resources import Resource, Secret
from anima.model.task import Task
from anima.stores.ports import Change
from workers.gateway.bodies import parse_json, read_body
from workers.gateway.security import require_user
from workers.gateway.services import Given, Services

MAX_RESOURCE_BYTES = 2 * 1024 * 1024
VALIDATED = "validated"
"""What a dry run says in place of a `Change`."""

_KINDS = {kind.plural: kind for kind in KINDS.values() if kind.model is not Task}

router = APIRouter(prefix="/v1", dependencies=[Depends(require_user)])


async def _kind(plural: str) -> Kind:
    if plural not in _KINDS:
        raise NotFound(f"the Catalog has no {plural}; it has {', '.join(_KINDS)}")
    return _KINDS[plural]


CatalogKind = Annotated[Kind, Depends(_kind)]


@router.put("/namespaces/{namespace}/{plural}/{name}")
async def apply(
    request: Request,
    services: Given,
    kind: CatalogKind,
    namespace: Name,
    name: Name,
    dry_run: Annotated[bool, Query(alias="dryRun")] = False,
) -> Response:
    """Create or replace an object; a dry run only tells whether that would be refused."""
    data = parse_json(await read_body(request, MAX_RESOURCE_BYTES))
    resource = parse_resource(data, namespace)
    _check_place(resource, kind, namespace, name)
    applied = await services.catalog.apply(resource, dry_run=dry_run)
    if dry_run:
        return JSONResponse({"change": VALIDATED, "resource": await _view(services, resource)})
    body = {"change": applied.change, "resource": await _view(services, applied.resource)}
    created = applied.change is Change.CREATED
    return JSONResponse(body, status.HTTP_201_CREATED if created else status.HTTP_200_OK)


@router.get("/namespaces/{namespace}/{plural}/{name}")
async def get(services: Given, kind: CatalogKind, namespace: Name, name: Name) -> Response:
    """Return an object as it is now."""
    return JSONResponse(await _view(services, await services.catalog.get(kind.model, namespace, name)))


@router.delete("/namespaces/{namespace}/{plural}/{name}", status_code=status.HTTP_204_NO_CONTENT)
async def delete(services: Given, kind: CatalogKind, namespace: Name, name: Name, uid: str | None = None) -> None:
    """Delete an object, but only the one with `uid` if that is given."""
    await services.catalog.delete(kind.model, namespace, name, uid)


@router.get("/namespaces/{namespace}/agents/{name}/prompt")
async def prompt(services: Given, namespace: Name, name: Name, text: bool = False) -> Response:
    """Return what a Task of this Agent would be given; its text only if asked for."""
    agent = await services.catalog.get(Agent, namespace, name)
    return JSONResponse((await services.inspector.preview(agent, text=text)).to_json())


@router.get("/namespaces/{namespace}/{plural}")
async def list_in_namespace(services: Given, kind: CatalogKind, namespace: Name) -> Response:
    """Return the objects of a kind in a namespace."""
    return await _list(services, kind, namespace)


@router.get("/{plural}")
async def list_all(services: Given, kind: CatalogKind) -> Response:
    """Return the objects of a kind in all namespaces."""
    return await _list(services, kind, None)


async def _list(services: Services, kind: Kind, namespace: str | None) -> Response:
    found = await services.catalog.list(kind.model, namespace)
    return JSONResponse({"items": [await _view(services, resource) for resource in found]})


async def _view(services: Services, resource: Resource) -> dict[str, Any]:
    """Return what may be read back: no value of a Secret, and an Agent's status."""
    if isinstance(resource, Secret):
        body = resource.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"string_data"})
        return body | {"keys": sorted(resource.string_data)}
    if isinstance(resource, Agent):
        conditions = await services.inspector.readiness(resource)
        return resource.to_json() | {"status": {"conditions": [condition.to_json() for condition in conditions]}}
    return resource.to_json()


def _check_place(resource: Resource, kind: Kind, namespace: str, name: str) -> None:
    expected = {"kind": kind.name, "metadata.namespace": namespace, "metadata.name": name}
    given = (resource.kind, resource.namespace, resource.name)
    problems = [
        Problem(path, f"is {value}, the address says {wanted}", "make them the same")
        for (path, wanted), value in zip(expected.items(), given, strict=True)
        if value != wanted
    ]
    if problems:
        raise Refusal(kind.reason, f"{kind.name} {name} is not valid: {summary(problems)}", problems)

"""The Catalog in SQL: Agents, Providers, ConfigMaps and Secrets."""

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from anima.model.errors import Conflict, NotFound
from anima.model.persona import SensitiveText
from anima.model.resources import ConfigMap, Resource
from anima.stores.ports import Applied, Change, T
from anima.stores.sql.engine import SqlStore, guarded
from anima.stores.sql.tables import catalog_revision, resources


class SqlCatalog(SqlStore):
    """The `Catalog` on an engine whose tables exist.

    Args:
        engine: from `open_engine`, migrated.
        clock: the time now, with its zone.
        new_uid: gives an identity that was never used before.
    """

    def __init__(self, engine: AsyncEngine, clock: Callable[[], datetime], new_uid: Callable[[], str]) -> None:
        super().__init__(engine, clock)
        self._new_uid = new_uid

    @guarded
    async def apply(self, resource: Resource, *, dry_run: bool = False) -> Applied:
        """Create or replace an object; see `Catalog.apply`."""
        async with self._writes.connect() as connection, connection.begin() as transaction:
            applied = await self._apply(connection, resource)
            if dry_run:
                await transaction.rollback()
            return applied

    async def _apply(self, connection: AsyncConnection, resource: Resource) -> Applied:
        # PostgreSQL's lock: two writers may find the object absent.
        revision = (await connection.execute(select(catalog_revision.c.revision).with_for_update())).scalar_one()
        stored = await _find(connection, type(resource), resource.namespace, resource.name)
        _check_identity(resource, stored)
        if stored is None:
            return await self._create(connection, resource, revision + 1)
        if _same(stored, resource):
            return Applied(stored, Change.UNCHANGED)
        _check_mutable(stored, resource)
        return await self._replace(connection, stored, resource, revision + 1)

    @guarded
    async def get(self, kind: type[T], namespace: str, name: str) -> T:
        """Return the object as it is now; see `Catalog.get`."""
        async with self._reads.connect() as connection:
            found = await _find(connection, kind, namespace, name)
        if found is None:
            raise _none(kind, namespace, name)
        return found

    @guarded
    async def list(self, kind: type[T], namespace: str | None = None) -> Sequence[T]:
        """Return the objects of a kind; see `Catalog.list`."""
        query = select(resources.c.body).where(resources.c.kind == kind.__name__)
        if namespace is not None:
            query = query.where(resources.c.namespace == namespace)
        async with self._reads.connect() as connection:
            bodies = (await connection.scalars(query.order_by(resources.c.namespace, resources.c.name))).all()
        return [_decode(kind, body) for body in bodies]

    @guarded
    async def delete(self, kind: type[Resource], namespace: str, name: str, uid: str | None = None) -> None:
        """Delete an object; see `Catalog.delete`."""
        async with self._writes.begin() as connection:
            found = await connection.scalar(select(resources.c.uid).where(_at(kind, namespace, name)).with_for_update())
            if found is None:
                raise _none(kind, namespace, name)
            if uid not in (None, found):
                raise Conflict(
                    f"{kind.__name__} {namespace}/{name} has uid {found}, not {uid}: it was deleted and created again; "
                    "read it, and delete the one you mean"
                )
            await connection.execute(delete(resources).where(_at(kind, namespace, name)))

    async def _create(self, connection: AsyncConnection, resource: Resource, revision: int) -> Applied:
        created = _with_metadata(
            resource,
            uid=self._new_uid(),
            generation=1,
            resource_version=str(revision),
            creation_timestamp=self._clock(),
        )
        row = {"kind": type(created).__name__, "namespace": created.namespace, "name": created.name}
        await connection.execute(insert(resources), row | {"uid": created.uid, "body": _encode(created)})
        await connection.execute(update(catalog_revision).values(revision=revision))
        return Applied(created, Change.CREATED)

    async def _replace(
        self, connection: AsyncConnection, stored: Resource, resource: Resource, revision: int
    ) -> Applied:
        changed = _with_metadata(
            resource,
            uid=stored.uid,
            generation=stored.generation + (stored.content() != resource.content()),
            resource_version=str(revision),
            creation_timestamp=stored.metadata.creation_timestamp,
        )
        place = _at(type(changed), changed.namespace, changed.name)
        await connection.execute(update(resources).where(place).values(body=_encode(changed)))
        await connection.execute(update(catalog_revision).values(revision=revision))
        return Applied(changed, Change.CONFIGURED)


async def _find(connection: AsyncConnection, kind: type[T], namespace: str, name: str) -> T | None:
    body = await connection.scalar(select(resources.c.body).where(_at(kind, namespace, name)))
    return None if body is None else _decode(kind, body)


def _at(kind: type[Resource], namespace: str, name: str) -> ColumnElement[bool]:
    columns = resources.c
    return and_(columns.kind == kind.__name__, columns.namespace == namespace, columns.name == name)


def _encode(resource: Resource) -> SensitiveText:
    return SensitiveText(resource.model_dump_json(exclude_none=True))


def _decode(kind: type[T], body: SensitiveText) -> T:
    return kind.model_validate_json(body.reveal())


def _with_metadata(resource: T, **fields: object) -> T:
    return resource.model_copy(update={"metadata": resource.metadata.model_copy(update=fields)})


def _same(stored: Resource, resource: Resource) -> bool:
    return (
        stored.content() == resource.content()
        and stored.metadata.labels == resource.metadata.labels
        and stored.metadata.annotations == resource.metadata.annotations
    )


def _check_identity(resource: Resource, stored: Resource | None) -> None:
    given = resource.metadata
    if stored is None:
        if given.uid or given.resource_version:
            raise Conflict(
                f"{_title(resource)} does not exist any more, and metadata says which one is meant; "
                "remove metadata.uid and metadata.resourceVersion to create it anew"
            )
        return
    if given.uid not in (None, stored.uid):
        raise Conflict(
            f"{_title(resource)} has uid {stored.uid}, metadata.uid says {given.uid}: it was deleted and created "
            "again; read it and apply your change to what you find"
        )
    if given.resource_version not in (None, stored.metadata.resource_version):
        raise Conflict(
            f"{_title(resource)} is at resourceVersion {stored.metadata.resource_version}, metadata.resourceVersion "
            f"says {given.resource_version}: it has changed since; read it and apply your change to what you find"
        )


def _check_mutable(stored: Resource, resource: Resource) -> None:
    if isinstance(stored, ConfigMap) and stored.immutable and stored.content() != resource.content():
        raise Conflict(
            f"{_title(stored)} is immutable: its data and its field immutable cannot change; "
            "create one under a new name, and delete this one once nothing refers to it"
        )


def _title(resource: Resource) -> str:
    return f"{resource.kind} {resource.namespace}/{resource.name}"


def _none(kind: type[Resource], namespace: str, name: str) -> NotFound:
    lower = kind.__name__.lower()
    return NotFound(
        f"there is no {kind.__name__} {name} in namespace {namespace}; "
        f"`anima get {lower} -n {namespace}` lists those there are"
    )

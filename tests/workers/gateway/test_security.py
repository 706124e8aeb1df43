"""Who may ask for what, and from where."""

from collections.abc import Awaitable, Callable

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from anima.model.attempts import AttemptKey
from anima.stores.ports import Ledger
from workers.gateway.services import Services

Begin = Callable[..., Awaitable[AttemptKey]]
Bearer = Callable[[AttemptKey], dict[str, str]]

USER_ROUTES = [
    ("PUT", "/v1/namespaces/default/agents/reviewer"),
    ("GET", "/v1/namespaces/default/agents/reviewer"),
    ("DELETE", "/v1/namespaces/default/secrets/key"),
    ("GET", "/v1/namespaces/default/agents/reviewer/prompt?text=true"),
    ("GET", "/v1/namespaces/default/configmaps"),
    ("GET", "/v1/secrets"),
    ("GET", "/v1/tasks"),
    ("GET", "/v1/namespaces/default/tasks/review"),
    ("GET", "/v1/namespaces/default/tasks/review/result"),
    ("GET", "/v1/namespaces/default/tasks/review/logs"),
    ("GET", "/v1/namespaces/default/tasks/review/events"),
    ("DELETE", "/v1/namespaces/default/tasks/review"),
    ("POST", "/v1/conversations/default/talk/messages"),
    ("GET", "/v1/conversations/default/talk"),
    ("GET", "/v1/conversations/default/talk/messages/1"),
    ("GET", "/v1/conversations/default/talk/messages/1/events"),
]
ATTEMPT_ROUTES = [("GET", "input"), ("POST", "events"), ("POST", "report")]
REPORT = b'{"answer": "Fine."}'


async def test_without_a_token_only_health_and_version_are_served(app: FastAPI, anyone: httpx2.AsyncClient) -> None:
    values = {"namespace": "n", "name": "x", "plural": "agents", "task_uid": "u", "iteration": "0", "attempt": "1"}
    values["number"] = "1"
    answers = {}
    for route in iter_route_contexts(app.routes):
        for method in route.methods or ():
            path = (route.path or "").format_map(values)
            answers[method, path] = (await anyone.request(method, path)).status_code
    opened = {call for call, status in answers.items() if status != 401}
    assert opened == {("GET", "/healthz"), ("GET", "/v1/version")}
    assert len(answers) > len(USER_ROUTES)


@pytest.mark.parametrize(("method", "path"), USER_ROUTES)
async def test_user_routes_refuse_every_other_credential(
    anyone: httpx2.AsyncClient,
    services: Services,
    begin: Begin,
    bearer: Bearer,
    method: str,
    path: str,
) -> None:
    token = services.keys.user_token
    for credential in ["", token, f"Basic {token}", f"Bearer {token[:-1]}", f"Bearer {token}x", "Bearer ", "Bearer ü"]:
        answer = await anyone.request(method, path, headers={"Authorization": credential.encode()})
        assert answer.status_code == 401, credential
        assert answer.json()["error"]["reason"] == "Unauthorized"
        assert answer.headers["www-authenticate"] == "Bearer"
    assert (await anyone.request(method, path, headers=bearer(await begin()))).status_code == 401


@pytest.mark.parametrize(("method", "route"), ATTEMPT_ROUTES)
async def test_attempt_routes_refuse_every_other_credential(
    anyone: httpx2.AsyncClient,
    user: httpx2.AsyncClient,
    begin: Begin,
    bearer: Bearer,
    method: str,
    route: str,
) -> None:
    mine, other = await begin("mine"), await begin("other")
    path = f"/v1/attempts/{mine.path}/{route}"
    assert (await anyone.request(method, path)).status_code == 401
    assert (await user.request(method, path)).status_code == 401
    forged = bearer(mine)["Authorization"][:-1] + "-"
    assert (await anyone.request(method, path, headers={"Authorization": forged})).status_code == 401
    for key in (other, mine.model_copy(update={"attempt": 2}), mine.model_copy(update={"iteration": 1})):
        assert (await anyone.request(method, path, headers=bearer(key))).status_code == 403


async def test_a_token_dies_with_its_attempt(
    anyone: httpx2.AsyncClient, begin: Begin, bearer: Bearer, ledger: Ledger
) -> None:
    key = await begin()
    path = f"/v1/attempts/{key.path}"
    assert (await anyone.get(f"{path}/input", headers=bearer(key))).status_code == 200
    await anyone.post(f"{path}/report", headers=bearer(key), content=REPORT)
    for method, route in ATTEMPT_ROUTES[:2]:
        answer = await anyone.request(method, f"{path}/{route}", headers=bearer(key), content=b"{}")
        assert answer.status_code == 410
        assert "is decided (succeeded); its token is dead" in answer.json()["error"]["message"]


@pytest.mark.parametrize(("method", "route"), ATTEMPT_ROUTES)
async def test_a_token_of_an_attempt_that_is_forgotten_is_dead(
    anyone: httpx2.AsyncClient, bearer: Bearer, method: str, route: str
) -> None:
    key = AttemptKey(task_uid="never", attempt=1)
    answer = await anyone.request(method, f"/v1/attempts/{key.path}/{route}", headers=bearer(key), content=REPORT)
    assert answer.status_code == 410


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8420", 200),
        ("localhost", 200),
        ("LocalHost:1", 200),
        ("[::1]:8420", 200),
        ("gateway.internal:8420", 200),
        ("rebound.example", 400),
        ("localhost.rebound.example", 400),
        ("127.0.0.1.rebound.example:8420", 400),
        ("localhost@rebound.example", 400),
        ("", 400),
    ],
)
async def test_only_known_hosts_are_served(anyone: httpx2.AsyncClient, host: str, status: int) -> None:
    assert (await anyone.get("/healthz", headers={"Host": host})).status_code == status


async def test_no_answer_is_cached_or_shared_with_other_origins(user: httpx2.AsyncClient) -> None:
    for path in ("/v1/agents", "/v1/namespaces/default/agents/none", "/v1/nothing"):
        answer = await user.get(path, headers={"Origin": "http://rebound.example"})
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-request-id"]
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_there_are_no_pages_that_load_scripts(user: httpx2.AsyncClient) -> None:
    assert {(await user.get(path)).status_code for path in ("/docs", "/redoc", "/openapi.json")} == {404}

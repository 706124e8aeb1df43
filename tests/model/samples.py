"""One whole example of everything: between them they use every model and every field."""

import copy
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

import anima.model
from anima.model.agent import Agent
from anima.model.api import (
    AttemptProgress,
    ErrorBody,
    EventPage,
    MessagePage,
    RecordedSpec,
    RevisionsInUse,
    SessionExplanation,
)
from anima.model.attempts import AttemptInput, AttemptRecord, Report
from anima.model.base import Model
from anima.model.binding import Revision
from anima.model.conversation import Attestation, ConversationStatus, Exchange, NewMessage
from anima.model.digests import digest_bytes
from anima.model.jobs import JobObservation, JobSpec
from anima.model.provider import Provider
from anima.model.resources import ConfigMap, Resource, Secret
from anima.model.session import Claimant, Place, Turn
from anima.model.steps import (
    AcquireSession,
    Admit,
    Admitted,
    AppendTurn,
    AttemptPlan,
    Bind,
    Close,
    CreateJob,
    DeleteJob,
    DriveConversation,
    DriveSession,
    Edit,
    JobCreated,
    LeaveSession,
    MessageState,
    PinSession,
    Projected,
    ProjectMessage,
    SessionWritten,
    Settle,
    Settled,
)
from anima.model.task import Task

MODULES = [f"anima.model.{module.name}" for module in pkgutil.iter_modules(anima.model.__path__)]
DIGEST = digest_bytes(b"")
NOW = "2030-01-02T03:04:05.678000Z"
METADATA = {
    "name": "reviewer",
    "namespace": "birds",
    "labels": {"team": "herons"},
    "annotations": {"note": "é"},
    "uid": "uid-1",
    "generation": 3,
    "resourceVersion": "7",
    "creationTimestamp": NOW,
}
KEY = {"taskUID": "task-1", "iteration": 2, "attempt": 3}
RESOURCES = {"requests": {"cpu": "0.5", "memory": "1024"}, "limits": {"cpu": "1", "memory": "2048"}}
SPEC = {
    "type": "ai",
    "agentRef": {"name": "reviewer"},
    "prompt": "Review it.",
    "ai": {"prompt": "All of it.", "systemPrompt": "Be brief.", "providerRef": {"name": "local"}, "model": "small"},
    "sessionRef": {"name": "talk", "append": False},
    "retryPolicy": {
        "maxRetries": 3,
        "initialDelay": "1s",
        "backoffMultiplier": 1.5,
        "maxDelay": "1m0s",
        "retryTimeouts": True,
    },
    "timeout": "5m0s",
    "deadline": "1h0m0s",
    "env": [{"name": "A", "value": "$B"}, {"name": "C", "secretKeyRef": {"name": "key", "key": "token"}}],
    "resources": RESOURCES,
    "priority": 5,
    "suspend": True,
}
BINDING = {
    "agentUID": "agent-1",
    "agentGeneration": 3,
    "taskUID": "task-1",
    "soulDigest": DIGEST,
    "promptDigest": DIGEST,
    "inputsDigest": DIGEST,
    "inputsVersion": 1,
    "envelopeVersion": 1,
    "boundAt": NOW,
}
RESULT = {"iteration": 2, "attempt": 3, "digest": DIGEST, "size": 12}
OUTCOME = {
    "succeeded": False,
    "reason": "JobFailed",
    "message": "exit code 3",
    "exitCode": 3,
    "result": RESULT,
    "decidedAt": NOW,
}
USAGE = {"inputTokens": 1, "outputTokens": 2, "requests": 3}
CONDITION = {"type": "Failed", "status": "True", "reason": "JobFailed", "message": "no", "lastTransitionTime": NOW}
STATUS = {
    "namespace": "birds",
    "name": "review",
    "uid": "task-1",
    "agent": "reviewer",
    "session": "talk",
    "phase": "Failed",
    "reason": "JobFailed",
    "message": "exit code 3",
    "attempt": 3,
    "totalAttempts": 4,
    "iteration": 2,
    "jobName": "review-1",
    "submissionTime": NOW,
    "startTime": NOW,
    "completionTime": NOW,
    "soulBinding": BINDING,
    "resultRef": RESULT,
    "holds": ["suspend"],
    "conditions": [CONDITION],
}
EVENT = {"sequence": 1, "kind": "text", "data": {"text": "é\0", "nothing": None, "deep": {"n": [1, None, 2.5]}}}
AGENT_SPEC = {
    "systemPrompt": {"inline": "Review.\r\n"},
    "soul": {"inline": "\ufeffBe kind.\r\n", "digest": DIGEST},
    "providerRef": {"name": "local"},
    "model": {"name": "small", "temperature": 0.5, "maxTokens": 100, "transcriptBytes": 4096},
    "runtime": {"type": "codex"},
    "resources": RESOURCES,
    "execution": {"image": "worker:1", "command": ["worker", "$HOME"]},
}
REFERENCE = {"configMapRef": {"name": "souls", "key": "SOUL.md"}, "digest": DIGEST}


def resource(kind: str, api_version: str = "anima.dev/v1alpha1", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": METADATA, **fields}


REVISION = {key: BINDING[key] for key in BINDING if key[:5] not in ("taskU", "input", "bound")}
CLAIMANT = {"taskUID": "task-1", "task": "talk-m1", "workflowId": "task/birds/talk-m1"}
LOCK = {"sessionUID": "session-1", "namespace": "birds", "session": "talk", "taskUID": "task-1", "token": 3}
QUEUE = {
    "sessionUID": "session-1",
    "owner": "conversation",
    "holder": {**CLAIMANT, "token": 3, "since": NOW, "taken": True},
    "waiting": 1,
    "next": [{**CLAIMANT, "askedAt": NOW}],
}
SESSION = {
    "namespace": "birds",
    "name": "talk",
    "uid": "session-1",
    "owner": "conversation",
    "messages": 4,
    "identity": {"revision": REVISION, "taskUID": "task-1", "task": "talk-m1", "pinnedAt": NOW},
    "queue": QUEUE,
    "createdAt": NOW,
    "updatedAt": NOW,
}
RECORD = {
    "role": "assistant",
    "content": "",
    "toolCalls": [{"id": "call-1", "name": "look", "arguments": "{}"}],
    "toolCallId": "call-0",
    "sequence": 4,
    "taskUID": "task-1",
    "iteration": 2,
    "revision": DIGEST,
    "reason": "JobFailed",
    "unbound": True,
    "createdAt": NOW,
}
POSTED = {
    "number": 1,
    "task": "talk-m1",
    "agent": "reviewer",
    "content": "Grüße 🦊",
    "postedAt": NOW,
    "answer": 4,
    "pendingBefore": 2,
}

SAMPLES: list[tuple[type[Model], dict[str, Any]]] = [
    (Agent, resource("Agent", spec=AGENT_SPEC)),
    (
        Agent,
        resource(
            "Agent",
            spec={"soul": REFERENCE, "systemPrompt": {"configMapRef": {"name": "roles", "key": "role"}}},
        ),
    ),
    (Agent, resource("Agent", spec={"runtimeRef": {"name": "external"}})),
    (
        Provider,
        resource(
            "Provider",
            spec={
                "type": "openai-compatible",
                "baseURL": "http://127.0.0.1:1/v1",
                "secretRef": {"name": "key", "key": "token"},
                "defaultModel": "small",
            },
        ),
    ),
    (Task, resource("Task", spec=SPEC)),
    (Task, resource("Task", spec={"type": "agent", "agentRef": {"name": "reviewer"}, "prompt": "Fix it."})),
    (ConfigMap, resource("ConfigMap", "v1", immutable=True, data={"SOUL.md": "Be kind.\r\n"})),
    (Secret, resource("Secret", "v1", type="Opaque", stringData={"token": "hush"})),
    (
        AttemptInput,
        {
            "schemaVersion": 1,
            "namespace": "birds",
            "task": "review",
            "key": KEY,
            "userPrompt": "Review it.",
            "userPromptDigest": DIGEST,
            "systemPromptDigest": DIGEST,
            "envelopeVersion": 1,
            "provider": {
                "type": "local",
                "baseURL": "http://127.0.0.1:1/v1",
                "model": "small",
                "temperature": 0.5,
                "maxTokens": 100,
            },
            "transcriptRef": {
                "session": "birds",
                "sessionUID": "session-1",
                "through": 4,
                "messages": 3,
                "budget": 4096,
                "digest": DIGEST,
            },
            "transcript": {
                "messages": [
                    {"role": "user", "content": "Grüße 🦊\r\n"},
                    {"role": "assistant", "toolCalls": [{"id": "call_2_0", "name": "look", "arguments": "{}"}]},
                    {"role": "tool", "content": "seen", "toolCallId": "call_2_0"},
                ],
                "leftOutMessages": 1,
            },
        },
    ),
    (
        AttemptRecord,
        {"key": KEY, "jobName": "review-1", "startedAt": NOW, "outcome": OUTCOME, "usage": USAGE, "model": "m"},
    ),
    (Report, {"answer": "Grüße \0 🦊\r\n", "usage": USAGE, "model": "small"}),
    (Report, {"reason": "AnswerBlank", "message": "blank"}),
    (Revision, {key: BINDING[key] for key in ("agentUID", "agentGeneration", "promptDigest", "envelopeVersion")}),
    (Revision, {key: BINDING[key] for key in BINDING if key[:5] not in ("taskU", "input", "bound")}),
    (
        JobSpec,
        {
            "name": "review-1",
            "namespace": "birds",
            "task": "review",
            "key": KEY,
            "promptDigest": DIGEST,
            "command": ["true"],
            "timeout": "5m0s",
            "grace": "1s",
            "memoryLimit": "1024",
        },
    ),
    (
        JobObservation,
        {
            "phase": "Ended",
            "uid": "job-1",
            "exitCode": 137,
            "timedOut": True,
            "message": "killed",
            "startedAt": NOW,
            "endedAt": NOW,
        },
    ),
    (
        Admit,
        {"namespace": "birds", "name": "review", "taskUid": "task-1", "workflowId": "task/x", "spec": SPEC, "now": NOW},
    ),
    (
        Admitted,
        {"closed": STATUS, "progress": STATUS, "jobsQueue": "jobs", "submittedAt": NOW, "checkInterval": "1m0s"},
    ),
    (Claimant, CLAIMANT),
    (AcquireSession, {"taskUid": "task-1"}),
    (LeaveSession, {"taskUid": "task-1"}),
    (PinSession, {"taskUid": "task-1", "lock": LOCK}),
    (AppendTurn, {"key": KEY, "lock": LOCK}),
    (SessionWritten, {"lost": True}),
    (DriveSession, {"namespace": "birds", "session": "talk"}),
    (Place, {"lock": LOCK, "owner": "tasks", "position": 3, "holder": "talk-m1"}),
    (
        Turn,
        {
            "taskUID": "task-1",
            "task": "talk-m1",
            "iteration": 1,
            "prompt": "Hello?",
            "answer": "Hello!",
            "revision": REVISION,
        },
    ),
    (Edit, {"taskUid": "task-1", "spec": SPEC}),
    (Bind, {"key": KEY}),
    (
        AttemptPlan,
        {
            "binding": BINDING,
            "jobName": "review-1",
            "promptDigest": DIGEST,
            "decided": OUTCOME,
            "totalAttempts": 4,
            "timeout": "5m0s",
            "deadline": "1h0m0s",
            "retryPolicy": SPEC["retryPolicy"],
        },
    ),
    (CreateJob, {"key": KEY, "jobName": "review-1", "promptDigest": DIGEST, "lock": LOCK}),
    (JobCreated, {"stale": True}),
    (DeleteJob, {"key": KEY, "jobName": "review-1"}),
    (Settle, {"key": KEY, "jobName": "review-1", "verdict": "JobTimeout", "message": "too long"}),
    (Settled, {"outcome": OUTCOME}),
    (Close, {"status": STATUS}),
    (
        ErrorBody,
        {
            "error": {
                "reason": "AgentInvalid",
                "message": "no",
                "remedy": "correct it",
                "problems": [{"path": "spec", "message": "no", "remedy": "yes"}],
                "requestId": "r-1",
            }
        },
    ),
    (EventPage, {"iteration": 2, "attempt": 3, "decided": True, "events": [EVENT]}),
    (RecordedSpec, {"spec": SPEC, "digest": DIGEST, "submittedDigest": DIGEST, "binding": BINDING}),
    (MessagePage, {"items": [RECORD]}),
    (
        SessionExplanation,
        {
            **{key: SESSION[key] for key in ("namespace", "name", "owner", "messages", "identity")},
            "hasHistory": True,
            "revision": DIGEST,
            "holder": QUEUE["holder"],
            "waiting": 1,
            "agents": [
                {
                    "agent": "reviewer",
                    "revision": DIGEST,
                    "soulDigest": DIGEST,
                    "accepted": False,
                    "reason": "SessionSoulMismatch",
                    "message": "no",
                }
            ],
        },
    ),
    (
        RevisionsInUse,
        {
            "items": [
                {
                    "digest": DIGEST,
                    "soulDigest": DIGEST,
                    "agentUID": "agent-1",
                    "agentGeneration": 2,
                    "agents": ["reviewer"],
                    "tasks": {"open": ["review"], "ended": 3},
                    "sessions": ["talk"],
                }
            ],
            "unresolved": [{"agent": "broken", "reason": "SoulSourceMissing", "message": "no"}],
        },
    ),
    (NewMessage, {"content": "Grüße 🦊\r\n", "agentRef": {"name": "reviewer"}}),
    (
        Attestation,
        {"taskUID": "task-1", "task": "talk-m1", "reason": "JobFailed", "message": "no", "unbound": True},
    ),
    (Exchange, {"message": POSTED, "answer": RECORD}),
    (
        ConversationStatus,
        {"namespace": "birds", "name": "talk", "agent": "reviewer", "pending": [POSTED], "session": SESSION},
    ),
    (AttemptProgress, {**EVENT, "iteration": 2, "attempt": 3}),
    (DriveConversation, {"namespace": "birds", "conversation": "talk"}),
    (MessageState, {"number": 1, "task": "talk-m1", "pending": 2}),
    (ProjectMessage, {"namespace": "birds", "conversation": "talk", "number": 1}),
    (Projected, {"done": True}),
]


def instances() -> list[Model]:
    return [model.model_validate(data) for model, data in SAMPLES]


def with_parts(value: Any) -> Iterator[Model]:
    """Yield every model inside a value, itself included."""
    if isinstance(value, list):
        for item in value:
            yield from with_parts(item)
    elif isinstance(value, Model):
        yield value
        for name in type(value).model_fields:
            yield from with_parts(getattr(value, name))


def every_model() -> set[type[BaseModel]]:
    """Import the whole package and return its concrete models."""
    for module in MODULES:
        importlib.import_module(module)
    found: list[type[BaseModel]] = [Model]
    for model in found:
        found += model.__subclasses__()
    return {model for model in found if model.__module__ in MODULES} - {Model, Resource}


def variants(data: Any, replacement: Any) -> Iterator[Any]:
    """Yield copies of plain data with one value, at any depth, replaced."""
    for place in _places(data):
        copied = copy.deepcopy(data)
        inner = copied
        for part in place[:-1]:
            inner = inner[part]
        inner[place[-1]] = replacement
        yield copied


def _places(data: Any, parents: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items: list[tuple[str | int, Any]] = []
    if isinstance(data, dict):
        items = list(data.items())
    elif isinstance(data, list):
        items = list(enumerate(data))
    for part, value in items:
        yield (*parents, part)
        yield from _places(value, (*parents, part))

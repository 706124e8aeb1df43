"""A conversation in the terminal: what was said, the answer as it comes, and under which revision."""

import sys
from collections.abc import Awaitable, Callable
from uuid import uuid4

import typer

from anima.cli.failures import report, show
from anima.cli.output import printable
from anima.cli.tables import short
from anima.conversations import Conversation
from anima.gateway import Gateway
from anima.model.attempts import ProgressEvent
from anima.model.conversation import Exchange
from anima.model.errors import AnimaError, NotFound, Unavailable
from anima.model.session import Identity, Role, SessionRecord

LAST = 10
"""Messages of an earlier time that are shown at the start."""


class Dialogue:
    """One person's part in a conversation.

    Args:
        gateway: that has the conversation.
        namespace: of the conversation.
        name: of the conversation.
        agent: who is asked; none for the Agent of the message before.
        live: print an answer as it comes, not only when it is whole.
        quiet: print no answers at all: they are read as data.
    """

    def __init__(
        self, gateway: Gateway, namespace: str, name: str, agent: str | None, *, live: bool, quiet: bool = False
    ) -> None:
        self._gateway = gateway
        self._namespace = namespace
        self._name = name
        self._agent = agent
        self._live = live and not quiet
        self._quiet = quiet
        self._conversation = Conversation(gateway, namespace, name, self._tell_away)
        self._revision_told = False
        self._away_told = False

    async def resume(self) -> None:
        """Show the end of what was said before, and follow what is not answered yet."""
        try:
            status = await self._conversation.status()
        except NotFound:
            return
        records = await self._gateway.records(self._namespace, self._name, limit=LAST, newest=True)
        for record in records:
            self._recall(record)
        for message in status.pending:
            typer.echo(f"> {printable(message.content)}", err=True)
            await self._follow(message.number)

    async def ask(self, content: str) -> Exchange:
        """Say something, and return it with its answer, which may be that there is none."""
        posted = await self._conversation.post(content, str(uuid4()), self._agent)
        if posted.pending_before:
            tell(f"{posted.pending_before} messages are to be answered first")
        answer = await self._follow(posted.number)
        return Exchange(message=posted, answer=answer)

    async def survive(self, do: Callable[[], Awaitable[object]]) -> None:
        """Do something; what goes wrong is shown, and the conversation goes on."""
        try:
            await do()
        except AnimaError as error:
            report(error, as_json=False)

    async def why(self) -> None:
        """Show which revision the conversation is pinned to, and by what."""
        try:
            identity = (await self._conversation.status()).session.identity
        except NotFound:
            identity = None
        tell(_explained(identity))
        tell(f"`anima session why {self._name} -n {self._namespace}` tells more")

    async def _follow(self, number: int) -> SessionRecord | None:
        shown = AnswerText(live=self._live)
        async for step in self._conversation.follow(number):
            self._away_told = False
            if isinstance(step, SessionRecord):
                if not self._quiet or step.reason is not None:
                    shown.finish(step)
                self._tell_revision(step)
                return step
            shown.add((step.iteration, step.attempt), step)
        shown.abandon()
        tell(f"the answer to message {number} is forgotten: retention has removed it")
        return None

    def _recall(self, record: SessionRecord) -> None:
        if record.role is Role.USER:
            typer.echo(f"> {printable(record.content)}", err=True)
        elif record.role is Role.ASSISTANT and record.reason is None:
            typer.echo(printable(record.content), err=True)
        elif record.role is Role.ASSISTANT:
            tell(_failure(record))

    def _tell_revision(self, answer: SessionRecord) -> None:
        if self._revision_told or answer.reason is not None:
            return
        self._revision_told = True
        tell(f"under revision {short(answer.revision)}; /why tells more" if answer.revision else "without a soul")

    def _tell_away(self, error: Unavailable) -> None:
        if not self._away_told:
            tell(f"{error}; asking again, Ctrl-C ends that")
        self._away_told = True


class AnswerText:
    """Prints one answer on standard output; what it began and dropped is not the answer.

    Args:
        live: print it as it comes.
    """

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._shown = ""
        self._attempt = (0, 1)

    def add(self, attempt: tuple[int, int], event: ProgressEvent) -> None:
        """Take one step of an attempt: more text, or that it begins anew."""
        if attempt != self._attempt:
            self._attempt = attempt
            self.abandon()
            tell(f"attempt {attempt[1]}")
        if event.kind == "retry":
            self.abandon()
            tell(f"asking again: {event.data.get('cause')}")
        elif event.kind == "text" and self._live:
            delta = str(event.data.get("delta", ""))
            self._shown += delta
            _write(delta)

    def finish(self, answer: SessionRecord) -> None:
        """Print what is missing of the whole answer; or, on standard error, why there is none."""
        if answer.reason is not None:
            self.abandon()
            message = _failure(answer)
            show({"reason": answer.reason.value, "message": message}, [message], as_json=False)
            return
        if not answer.content.startswith(self._shown):
            self.abandon()
        rest = answer.content[len(self._shown) :]
        _write(rest if answer.content.endswith("\n") else f"{rest}\n")

    def abandon(self) -> None:
        """End the line that was begun: the answer begins anew, or does not come."""
        if self._shown and not self._shown.endswith("\n"):
            _write("\n")
        self._shown = ""


def tell(line: str) -> None:
    """Print one line beside the conversation."""
    typer.secho(printable(line), err=True, dim=True)


def _write(text: str) -> None:
    sys.stdout.write(printable(text))
    sys.stdout.flush()


def _failure(answer: SessionRecord) -> str:
    assert answer.reason is not None
    said = f": {answer.content}" if answer.content else ""
    return f"no answer ({answer.reason}){said}. {answer.reason.remedy}"


def _explained(identity: Identity | None) -> str:
    if identity is None:
        return "the conversation is not pinned yet: its first answer pins it"
    by = f"by Task {identity.task}, " if identity.task else ""
    when = f"{by}{identity.pinned_at:%Y-%m-%d %H:%M:%S} UTC"
    if identity.revision is None:
        return f"pinned to having no soul ({when})"
    return f"pinned to revision {short(identity.digest)}, soul {short(identity.revision.soul_digest)} ({when})"

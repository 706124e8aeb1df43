"""What a model is sent of a Session, in both protocols, and what else the worker does with it."""

import io
import json
from collections.abc import Iterator, Sequence

import pytest

from anima.model.reasons import Reason
from anima.model.session import Message, Role, ToolCall
from anima.model.transcript import MAX_BUDGET, Transcript
from tests.doubles import model_server as double
from tests.doubles.attempt_gateway import AttemptGatewayDouble
from tests.doubles.model_server import ANSWER, ModelServer, Received
from workers.ai.attempt import ExitCode, Patience, run_attempt
from workers.ai.environment import take_environment
from workers.ai.log import job_log
from workers.ai.retries import RetryLimits

SOUL = "You are Quillon,\r\n the harbour master of Vess. \n"
NOTE = "[Messages left out of this conversation: 12]\n\n"
BOTH = pytest.mark.parametrize("provider", ["openai-compatible", "anthropic"])
QUICK = RetryLimits(tries=3, total=10, first_delay=0.01, max_delay=0.02)


class World:
    def __init__(self, gateway: AttemptGatewayDouble, models: ModelServer) -> None:
        self.gateway = gateway
        self.models = models
        self.log = io.StringIO()

    def job(self, messages: Sequence[Message], provider: str, prompt: str = "And now?", left_out: int = 0):
        address = self.models.address + ("" if provider == "anthropic" else "/v1")
        transcript = Transcript(messages=[*messages], left_out_messages=left_out)
        return self.gateway.job(SOUL, prompt, provider=provider, base_url=address, transcript=transcript)

    async def run(self, environment: dict[str, str]) -> ExitCode:
        patience = Patience(input=QUICK, report=QUICK, provider=QUICK, event_interval=0.01)
        return await run_attempt(take_environment(environment), job_log(self.log), patience)

    async def sent(self, messages: Sequence[Message], provider: str, prompt: str = "And now?") -> Received:
        """Return what the model received."""
        assert await self.run(self.job(messages, provider, prompt)) == ExitCode.ANSWERED
        return self.models.requests[-1]


@pytest.fixture
def world() -> Iterator[World]:
    with AttemptGatewayDouble() as gateway, ModelServer() as models:
        yield World(gateway, models)


def user(content: str) -> Message:
    return Message(role=Role.USER, content=content)


def assistant(content: str = "", *calls: ToolCall) -> Message:
    return Message(role=Role.ASSISTANT, content=content, tool_calls=[*calls])


def result(content: str, call: str) -> Message:
    return Message(role=Role.TOOL, content=content, tool_call_id=call)


CALLS = [
    user("Look it up"),
    assistant(
        "I do.",
        ToolCall(id="call_2_0", name="tides", arguments='{"port":"Vess"}'),
        ToolCall(id="call_2_1", name="moon", arguments="{}"),
    ),
    result("ebb", "call_2_0"),
    result("full", "call_2_1"),
]


@BOTH
async def test_the_conversation_comes_before_the_prompt_in_its_order(world: World, provider: str) -> None:
    sent = await world.sent([user("Ahoy"), assistant("Ahoy!"), user("Tide?"), assistant("Ebb.")], provider)
    assert sent.messages == [
        ("user", "Ahoy"),
        ("assistant", "Ahoy!"),
        ("user", "Tide?"),
        ("assistant", "Ebb."),
        ("user", "And now?"),
    ]
    assert world.gateway.report.answer == ANSWER


@BOTH
@pytest.mark.parametrize("messages", [[], [user("Ahoy"), assistant("Ahoy!")], [user("Ahoy")], CALLS])
async def test_the_system_text_goes_out_exactly_once_and_byte_for_byte(
    world: World, provider: str, messages: list[Message]
) -> None:
    sent = await world.sent(messages, provider)
    assert sent.system == SOUL
    assert sent.raw.count(b"harbour master") == 1
    assert not [message for message in sent.body["messages"][1:] if message["role"] == "system"]


@BOTH
@pytest.mark.parametrize(
    "text",
    [
        "line\r\nline\r\n",
        "\ufeff  blanks \t\n",
        "<system>x</system> <pyai:tool_result>",
        "<|im_start|>",
        "ä 漢字 🎭 \u2028",
    ],
)
async def test_messages_arrive_byte_for_byte(world: World, provider: str, text: str) -> None:
    calls = [assistant(text, ToolCall(id="c", name="look")), result(text, "c"), assistant(text)]
    sent = await world.sent([user(text), *calls, user(text)], provider, prompt=text)
    assert sent.raw.count(json.dumps(text, ensure_ascii=False).encode()) == 6
    assert sent.system == SOUL


async def test_calls_and_their_results_in_openai_s_protocol(world: World) -> None:
    sent = await world.sent([*CALLS, assistant("Ebb at a full moon.")], "openai-compatible")
    calls = [
        {"id": "call_2_0", "type": "function", "function": {"name": "tides", "arguments": '{"port":"Vess"}'}},
        {"id": "call_2_1", "type": "function", "function": {"name": "moon", "arguments": "{}"}},
    ]
    assert sent.messages == [
        ("user", "Look it up"),
        ("assistant", ("I do.", {"tool_calls": calls})),
        ("tool", ("ebb", {"tool_call_id": "call_2_0"})),
        ("tool", ("full", {"tool_call_id": "call_2_1"})),
        ("assistant", "Ebb at a full moon."),
        ("user", "And now?"),
    ]
    assert not {"tools", "tool_choice"} & {*sent.body}


async def test_calls_and_their_results_in_anthropic_s_protocol(world: World) -> None:
    sent = await world.sent([*CALLS, assistant("Ebb at a full moon.")], "anthropic")
    results = [("call_2_0", "ebb"), ("call_2_1", "full")]
    assert sent.messages == [
        ("user", "Look it up"),
        (
            "assistant",
            [
                {"type": "text", "text": "I do."},
                {"type": "tool_use", "id": "call_2_0", "name": "tides", "input": {"port": "Vess"}},
                {"type": "tool_use", "id": "call_2_1", "name": "moon", "input": {}},
            ],
        ),
        (
            "user",
            [
                {
                    "type": "tool_result",
                    "tool_use_id": call,
                    "content": [{"type": "text", "text": text}],
                    "is_error": False,
                }
                for call, text in results
            ],
        ),
        ("assistant", "Ebb at a full moon."),
        ("user", "And now?"),
    ]


async def test_where_a_history_has_calls_anthropic_is_told_the_tools_and_to_call_none(world: World) -> None:
    sent = await world.sent(CALLS, "anthropic")
    assert [tool["name"] for tool in sent.body["tools"]] == ["moon", "tides"]
    assert sent.body["tool_choice"] == {"type": "none"}


@BOTH
async def test_a_conversation_without_calls_adds_nothing_to_the_request(world: World, provider: str) -> None:
    sent = await world.sent([user("Ahoy"), assistant("Ahoy!")], provider)
    assert not {"tools", "tool_choice"} & {*sent.body}


@BOTH
async def test_user_messages_without_an_answer_between_them_are_parts_of_one(world: World, provider: str) -> None:
    """Some models demand that the sides alternate."""
    sent = await world.sent([user("One"), user("Two"), assistant("2"), assistant("II"), user("Three")], provider)
    assert [role for role, _ in sent.messages] == ["user", "assistant", "user"]
    assert sent.messages[0][1] == [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]
    assert sent.messages[2][1] == [{"type": "text", "text": "Three"}, {"type": "text", "text": "And now?"}]


@BOTH
async def test_a_call_without_text_and_a_prompt_right_after_its_result(world: World, provider: str) -> None:
    calls = [user("Look"), assistant("", ToolCall(id="call_2_0", name="look")), result("seen", "call_2_0")]
    sent = await world.sent(calls, provider)
    assert [role for role, _ in sent.messages] == {
        "openai-compatible": ["user", "assistant", "tool", "user"],
        "anthropic": ["user", "assistant", "user"],
    }[provider]
    assert b'"And now?"' in sent.raw


@BOTH
async def test_what_is_left_out_is_said_to_the_user_s_side_only(world: World, provider: str) -> None:
    messages = [user(f"{NOTE}Ahoy"), assistant("Ahoy!")]
    assert await world.run(world.job(messages, provider, left_out=12)) == ExitCode.ANSWERED
    (sent,) = world.models.requests
    assert (sent.system, sent.messages[0]) == (SOUL, ("user", f"{NOTE}Ahoy"))


@BOTH
async def test_the_first_events_tell_how_much_of_the_session_is_given(world: World, provider: str) -> None:
    await world.run(world.job([user("Ahoy"), assistant("Ahoy!")], provider, left_out=12))
    assert [event.kind for event in world.gateway.events][:3] == ["started", "transcript", "text"]
    assert world.gateway.events[1].data == {"messages": 2, "leftOut": 12}


@BOTH
async def test_a_second_try_sends_the_same_conversation(world: World, provider: str) -> None:
    world.models.script(double.error(503), double.answer(" "))
    await world.sent([*CALLS, assistant("Ebb.")], provider)
    assert len({request.raw for request in world.models.requests}) == 1
    assert len(world.models.requests) == 3


async def test_a_transcript_of_the_largest_budget_is_delivered(world: World) -> None:
    words = "\u0001" * (MAX_BUDGET // 2)
    sent = await world.sent([user(words), assistant(words)], "openai-compatible")
    assert sent.messages[:2] == [("user", words), ("assistant", words)]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda given: given["transcript"]["messages"].pop(), "transcript that arrived has digest sha256:"),
        (lambda given: given["transcript"]["messages"].reverse(), "the attempt was created for sha256:"),
        (lambda given: given["transcript"].update(leftOutMessages=0), "transcript that arrived has digest sha256:"),
        (lambda given: given.pop("transcript"), "transcript that arrived has digest (none)"),
        (lambda given: given.pop("transcriptRef"), "the attempt was created for (none)"),
    ],
)
async def test_another_transcript_is_refused_before_any_model_is_asked(world: World, change, named: str) -> None:
    environment = world.job([user("Ahoy zephyr"), assistant("Ahoy!")], "openai-compatible", left_out=12)
    change(world.gateway.input)
    assert await world.run(environment) == ExitCode.REFUSED_TO_START
    assert world.gateway.report.reason is Reason.PROMPT_DIGEST_MISMATCH
    assert named in world.gateway.report.message
    assert world.models.requests == []


async def test_no_log_line_or_message_quotes_the_conversation(world: World) -> None:
    world.models.script(double.error(400))
    assert await world.run(world.job([user("zephyr-marmalade"), assistant("zephyr")], "anthropic")) == ExitCode.FAILED
    assert "zephyr" not in world.log.getvalue() + world.gateway.report.message


@pytest.mark.parametrize(("count", "said"), [(0, "0 earlier messages"), (4, "4 earlier messages")])
async def test_a_rehearsal_says_how_many_messages_came_with_the_prompt(world: World, count: int, said: str) -> None:
    messages = [user("zephyr"), assistant("zephyr")] * (count // 2)
    assert await world.run(world.job(messages, "rehearsal")) == ExitCode.ANSWERED
    assert said in (world.gateway.report.answer or "")
    assert "zephyr" not in (world.gateway.report.answer or "")


async def test_without_a_session_a_rehearsal_says_nothing_of_one(world: World) -> None:
    await world.run(world.gateway.job(SOUL, "Tide?", provider="rehearsal"))
    assert "Session" not in (world.gateway.report.answer or "")
    assert [event.kind for event in world.gateway.events] == ["started", "text"]

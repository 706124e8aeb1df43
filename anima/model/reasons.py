"""Why a Task ended, or an object was refused: one enum for the whole product.

A reason is the failure type in Temporal, the reason in a status, the value of a
search attribute, a metric label and the code in ``--output json``.  Nothing in
Anima ever parses a message.
"""

from enum import StrEnum


class Reason(StrEnum):
    """A permanent cause.  `remedy` tells the reader what to do next."""

    TASK_INVALID = "TaskInvalid"
    TASK_CONFLICT = "TaskConflict"
    AGENT_MISSING = "AgentMissing"
    AGENT_INVALID = "AgentInvalid"
    PROVIDER_MISSING = "ProviderMissing"
    PROVIDER_INVALID = "ProviderInvalid"
    RESOURCE_INVALID = "ResourceInvalid"
    REQUEST_REFUSED = "RequestRefused"
    SETTING_INVALID = "SettingInvalid"
    RUNTIME_UNSUPPORTED = "RuntimeUnsupported"
    ROLE_SOURCE_INVALID = "RoleSourceInvalid"

    SOUL_SOURCE_INVALID = "SoulSourceInvalid"
    SOUL_SOURCE_MISSING = "SoulSourceMissing"
    SOUL_DIGEST_MISMATCH = "SoulDigestMismatch"
    SOUL_TOO_LARGE = "SoulTooLarge"
    PROMPT_TOO_LARGE = "PromptTooLarge"
    PROMPT_DIGEST_MISMATCH = "PromptDigestMismatch"

    SOUL_REMOVED = "SoulRemoved"
    SOUL_DRIFT = "SoulDrift"
    SOUL_INTRODUCED_LATE = "SoulIntroducedLate"
    FROZEN_INPUT_DRIFT = "FrozenInputDrift"

    SESSION_SOUL_MISMATCH = "SessionSoulMismatch"
    SESSION_UNPINNED_HISTORY = "SessionUnpinnedHistory"
    SESSION_MUST_APPEND = "SessionMustAppend"
    SESSION_OWNED = "SessionOwned"
    CONVERSATION_FULL = "ConversationFull"

    ANSWER_BLANK = "AnswerBlank"
    ANSWER_REFUSED = "AnswerRefused"
    ANSWER_TRUNCATED = "AnswerTruncated"
    ANSWER_TOO_LARGE = "AnswerTooLarge"
    PROVIDER_FAILED = "ProviderFailed"

    JOB_FAILED = "JobFailed"
    JOB_TIMEOUT = "JobTimeout"
    JOB_LOST = "JobLost"
    JOB_IDENTITY_CONFLICT = "JobIdentityConflict"

    DEADLINE_EXCEEDED = "DeadlineExceeded"
    CANCELLED = "Cancelled"
    TERMINATED = "Terminated"

    @property
    def remedy(self) -> str:
        """Return one line that tells a person what to do about it."""
        return _REMEDIES[self]


_REMEDIES = {
    Reason.TASK_INVALID: "Correct the fields that are named and submit the Task again.",
    Reason.TASK_CONFLICT: "Choose another name, or delete the Task of this name once it has ended.",
    Reason.AGENT_MISSING: "Apply the Agent in the Task's namespace, or correct spec.agentRef.name.",
    Reason.AGENT_INVALID: "Correct the Agent; `anima describe agent NAME` lists what is wrong.",
    Reason.PROVIDER_MISSING: "Apply the Provider, or correct providerRef.name.",
    Reason.PROVIDER_INVALID: "Correct the Provider: its type, baseURL, model or secretRef.",
    Reason.RESOURCE_INVALID: "Correct the fields that are named and apply again.",
    Reason.REQUEST_REFUSED: "Check the gateway's address, the token and the size of what was sent.",
    Reason.SETTING_INVALID: "Correct the environment variable or the file that is named.",
    Reason.RUNTIME_UNSUPPORTED: "Use an Agent without runtimeRef, and Task type `ai`.",
    Reason.ROLE_SOURCE_INVALID: "Correct systemPrompt: its ConfigMap, key or text.",
    Reason.SOUL_SOURCE_INVALID: "Give exactly one source of non-blank UTF-8 text without NUL.",
    Reason.SOUL_SOURCE_MISSING: "Publish the ConfigMap and key that spec.soul names.",
    Reason.SOUL_DIGEST_MISMATCH: "Publish the text that was approved, or a new Agent revision.",
    Reason.SOUL_TOO_LARGE: "Shorten the soul; nothing is ever truncated.",
    Reason.PROMPT_TOO_LARGE: "Shorten the role or the soul; nothing is ever truncated.",
    Reason.PROMPT_DIGEST_MISMATCH: "Run matching versions of orchestrator and worker.",
    Reason.SOUL_REMOVED: "Create a new Task; this one stays bound to the soul it began with.",
    Reason.SOUL_DRIFT: "Create a new Task; this one stays bound to the revision it began with.",
    Reason.SOUL_INTRODUCED_LATE: "Create a new Task; a started Task cannot gain a soul.",
    Reason.FROZEN_INPUT_DRIFT: "Create a new Task with the changed inputs.",
    Reason.SESSION_SOUL_MISMATCH: "Use another Session; `anima session why NAME` tells what this one is pinned to.",
    Reason.SESSION_UNPINNED_HISTORY: "Begin a new Session; a soul cannot join a conversation that began without one.",
    Reason.SESSION_MUST_APPEND: "Let the first Task of the Session append its turn: sessionRef.append true.",
    Reason.SESSION_OWNED: "Use another Session; this one is a conversation's, or a conversation needs another name.",
    Reason.CONVERSATION_FULL: "Wait until some of the messages are answered.",
    Reason.ANSWER_BLANK: "Try again, or change the prompt or the model.",
    Reason.ANSWER_REFUSED: "Change the prompt; the provider declined to answer.",
    Reason.ANSWER_TRUNCATED: "Raise model.maxTokens, or ask for a shorter answer.",
    Reason.ANSWER_TOO_LARGE: "Ask for a shorter answer; results are at most 1 MiB.",
    Reason.PROVIDER_FAILED: "Check the Provider's address, key and health, then run a new Task.",
    Reason.JOB_FAILED: "Read `anima logs TASK`.",
    Reason.JOB_TIMEOUT: "Raise spec.timeout, or ask for less in one attempt.",
    Reason.JOB_LOST: "Run the Task again; its process ended without leaving an exit status.",
    Reason.JOB_IDENTITY_CONFLICT: "Remove what holds the Job's name; it is not this Task's.",
    Reason.DEADLINE_EXCEEDED: "Raise spec.deadline.",
    Reason.CANCELLED: "Nothing; it was cancelled on request.",
    Reason.TERMINATED: "Submit a new Task; this one's workflow was terminated.",
}

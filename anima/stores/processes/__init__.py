"""Jobs as child processes: the `Jobs` port of the embedded stack.

::

    orchestrator ── Nursery ──pipe──▶ zygote ──fork──▶ supervisor ──fork──▶ the Job
         ▲                            (worker            keeps the exit status
         │                             preloaded)        in the Job's directory
         └──────────── one datagram when it has ended ───────┘

The zygote and all that is forked from it import only the standard library, this
package's `census`, `child`, `directory`, `launch`, `supervisor` and `zygote`, and
what the entrypoint itself needs.
"""

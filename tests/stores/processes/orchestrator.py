"""Creates one Job, says so, and waits to be killed.  Arguments: home, spec, program."""

import asyncio
import sys
from pathlib import Path

from anima.home import Home
from anima.model.jobs import JobSpec
from anima.model.persona import SensitiveText
from tests.stores.processes.bench import local_jobs


async def main(home: str, spec: str, program: str) -> None:
    async with local_jobs(Home(Path(home))) as jobs:
        await jobs.preloaded()
        uid = await jobs.create(JobSpec.model_validate_json(spec), {"PROGRAM": SensitiveText(program)})
        sys.stdout.write(f"{uid}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""Runbooks as a person follows them: every command as the page has it, typed by bash and psql."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.conftest import PROGRAM, environment
from tests.database import Database

FOLDER = Path(__file__).parents[2] / "docs" / "runbooks"
NAMES = sorted(page.stem.removeprefix("activity-retention-") for page in FOLDER.glob("*.md"))

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Variables live on from block to block, as in a shell that stays open; any command that fails ends its block.
_BASH = """
if [ -e variables ]; then . ./variables; fi
trap 'export -p >variables' EXIT
set -aeuo pipefail
"""


@dataclass(frozen=True)
class Block:
    """What stands between two fences: `sh` is for bash, `sql` for psql, `text` cannot be typed everywhere."""

    language: str
    text: str


@dataclass(frozen=True)
class Section:
    title: str
    blocks: tuple[Block, ...]

    @property
    def commands(self) -> tuple[Block, ...]:
        return tuple(block for block in self.blocks if block.language != "text")


@dataclass(frozen=True)
class Page:
    text: str

    @property
    def sections(self) -> tuple[Section, ...]:
        parts = re.split(r"^##+ (.+)$", self.text, flags=re.MULTILINE)
        return tuple(
            Section(
                title, tuple(Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```$", body, re.M | re.S))
            )
            for title, body in zip(parts[1::2], parts[2::2], strict=True)
        )

    @property
    def prose(self) -> str:
        """Without line breaks and marks."""
        return _one_line(self.text.replace("`", ""))


def read_page(name: str) -> Page:
    return Page((FOLDER / f"activity-retention-{name}.md").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Seen:
    """What the commands of a section wrote."""

    text: str
    page: Page

    @property
    def line(self) -> str:
        return _one_line(self.text)

    def shows(self, *phrases: str) -> None:
        """The page told of each phrase, and it was written."""
        for phrase in phrases:
            assert phrase in self.page.prose, f"the runbook does not tell of {phrase!r}"
            assert phrase in self.line, f"{phrase!r} is not in:\n{self.text}"


class Reader:
    """A person with a runbook and two ways to the database: as the job's role, and as an administrator."""

    def __init__(self, name: str, database: Database, folder: Path, **settings: str) -> None:
        self.page = read_page(name)
        self.folder = folder
        self._sections = {section.title: section for section in self.page.sections}
        (folder / "psqlrc").write_text("\\set ON_ERROR_STOP on\n")
        own = environment()
        self.variables = {
            **own,
            "PATH": f"{PROGRAM.parent}:{database.server.binaries}:{own['PATH']}",
            "PSQLRC": str(folder / "psqlrc"),
            "ADMIN_URL": database.url(),
            "ACTIVITY_RETENTION_DATABASE_URL": database.url("activity_retention"),
            **{f"ACTIVITY_RETENTION_{key.upper()}": value for key, value in settings.items()},
        }

    def follow(self, title: str, *, code: int = 0) -> Seen:
        """Types the commands below this heading; `code` is the worst that one of them may and must exit with."""
        done = [self._type(block) for block in self._sections[title].commands]
        seen = "".join(each.stdout for each in done)
        assert max(each.returncode for each in done) == code, seen
        assert "Traceback" not in seen
        return Seen(seen, self.page)

    def _type(self, block: Block) -> "subprocess.CompletedProcess[str]":
        is_sql = block.language == "sql"
        return subprocess.run(
            ["psql", self.variables["ADMIN_URL"]] if is_sql else ["bash", "-c", _BASH + block.text],
            input=block.text if is_sql else "",
            cwd=self.folder,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )

    @contextmanager
    def job(self, *arguments: str, **settings: str) -> Iterator["subprocess.Popen[bytes]"]:
        """The job as somebody else started it, with its log in run.log; killed when the block ends."""
        own = {f"ACTIVITY_RETENTION_{key.upper()}": value for key, value in settings.items()}
        with (self.folder / "run.log").open("ab") as log:
            process = subprocess.Popen(
                [PROGRAM, *arguments],
                cwd=self.folder,
                env={**self.variables, **own},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def job_ends(self, *arguments: str, code: int = 0, **settings: str) -> None:
        """The same, until it ends by itself."""
        with self.job(*arguments, **settings) as process:
            assert process.wait(timeout=120) == code, self.log

    @property
    def log(self) -> str:
        return (self.folder / "run.log").read_text()


@contextmanager
def frozen(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """The process does not run, as in a pod whose node has stalled."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def _one_line(text: str) -> str:
    return " ".join(text.split())

"""How many roots the next batch takes."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class BatchSize:
    """Halved when a batch is too much for its time or its locks, and grown again while there is room."""

    limit: int
    current: int

    def halved(self) -> "BatchSize":
        return replace(self, current=max(1, self.current // 2))

    def after(self, took: float, timeout: float) -> "BatchSize":
        """The size after a batch that committed in `took` seconds: doubled only if twice the work would use
        less than half of `timeout`, so that a database that is slow throughout does not time out in turns."""
        if self.current < self.limit and took * 4 < timeout:
            return replace(self, current=min(self.limit, self.current * 2))
        return self

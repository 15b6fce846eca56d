"""Incidents of one cause that came and went, put together as one fault.

A GPU that throttles for minutes and recovers for minutes is one fault with many spells. Each by
itself costs little, and something that names nobody would outweigh every one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope_analyzers.stragglers.incidents import Incident, same_fault


@dataclass(frozen=True, slots=True)
class Fault:
    """Incidents of one class and one culprit, in order of time.

    Args:
        episodes: at least one.
        newest: record clock up to which the job is known.
    """

    episodes: tuple[Incident, ...]
    newest: float

    @property
    def main(self) -> Incident:
        """Return the spell that lost most."""
        return max(self.episodes, key=self.lost_seconds)

    @property
    def since(self) -> float:
        """Return when the first spell began."""
        return min(min(episode.since, episode.began_earlier) for episode in self.episodes)

    @property
    def count(self) -> int:
        """Return in how many spells it came, those that are put together included."""
        return sum(1 + episode.earlier for episode in self.episodes)

    @property
    def until(self) -> float | None:
        """Return when the last spell ended, None while one goes on."""
        ends = [episode.until for episode in self.episodes]
        return None if None in ends else max(end for end in ends if end is not None)

    @property
    def lost_fraction(self) -> float:
        """Return the share of the time of all spells that was lost."""
        lasted = sum(self.lasted(episode) + episode.lasted_earlier for episode in self.episodes)
        return self.lost / lasted if lasted > 0 else self.main.cost

    @property
    def lost(self) -> float:
        """Return the seconds that all spells together took from every rank."""
        return sum(self.lost_seconds(episode) + episode.lost_earlier for episode in self.episodes)

    def lasted(self, episode: Incident) -> float:
        """Return how long a spell lasted so far, seconds."""
        end = self.newest if episode.until is None else episode.until
        return max(end - episode.since, 0.0)

    def lost_seconds(self, episode: Incident) -> float:
        """Return what a spell lost so far, seconds."""
        return episode.cost * self.lasted(episode)


def merge_incidents(incidents: Sequence[Incident], newest: float) -> tuple[Fault, ...]:
    """Put incidents of one cause together, in the order of the first of each.

    Args:
        incidents: in order of detection.
        newest: record clock up to which the job is known.
    """
    groups: list[list[Incident]] = []
    for incident in incidents:
        for group in groups:
            if same_fault(group[0], incident):
                group.append(incident)
                break
        else:
            groups.append([incident])
    return tuple(Fault(tuple(group), newest) for group in groups)

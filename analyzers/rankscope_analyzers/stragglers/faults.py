"""Incidents of one cause that comes and goes, merged into one fault.

A GPU that throttles for minutes and recovers for minutes is one fault with many episodes. Each of
them costs little, and a fault without a culprit would outweigh every one of them.
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
        newest: record clock of the newest record.
    """

    episodes: tuple[Incident, ...]
    newest: float

    @property
    def main(self) -> Incident:
        """Return the episode that is active, else the one that lost the most time."""
        active = [one for one in self.episodes if one.until is None]
        return active[-1] if active else max(self.episodes, key=self.lost_seconds)

    @property
    def since(self) -> float:
        """Return when the first episode began."""
        return min(min(episode.since, episode.began_earlier) for episode in self.episodes)

    @property
    def count(self) -> int:
        """Return the number of episodes, including those that were merged before."""
        return max(1, sum(episode.episodes for episode in self.episodes))

    @property
    def until(self) -> float | None:
        """Return when the last episode ended, None while one is active."""
        ends = [episode.until for episode in self.episodes]
        return None if None in ends else max(end for end in ends if end is not None)

    @property
    def lost_fraction(self) -> float:
        """Return the share of the time of all episodes that was lost."""
        lasted = sum(self.lasted(episode) + episode.lasted_earlier for episode in self.episodes)
        return self.lost / lasted if lasted > 0 else self.main.cost

    @property
    def lost(self) -> float:
        """Return the seconds that every rank lost in all episodes."""
        return sum(self.lost_seconds(episode) + episode.lost_earlier for episode in self.episodes)

    def lasted(self, episode: Incident) -> float:
        """Return how long an episode has lasted so far, seconds."""
        end = self.newest if episode.until is None else episode.until
        return max(end - episode.since, 0.0)

    def lost_seconds(self, episode: Incident) -> float:
        """Return what an episode has lost so far, seconds."""
        return episode.cost * self.lasted(episode)


def merge_incidents(incidents: Sequence[Incident], newest: float) -> tuple[Fault, ...]:
    """Merge incidents of one cause, in the order of the first of each.

    Args:
        incidents: in order of detection.
        newest: record clock of the newest record.
    """
    groups: list[list[Incident]] = []
    for incident in incidents:
        for group in groups:
            if any(same_fault(known, incident) for known in group):
                group.append(incident)
                break
        else:
            groups.append([incident])
    return tuple(Fault(tuple(group), newest) for group in groups)

"""The bugs that others published, shown not to be ours; `make gallery` runs the same stories on the others."""

import pytest

from tests.gallery.readers import OURS, READERS
from tests.gallery.stories import STORIES, Story, stage


@pytest.mark.parametrize(
    "story",
    [pytest.param(story, id=story.name, marks=pytest.mark.proves(*story.proves)) for story in STORIES],
)
def test_this_bug_is_not_ours(story: Story) -> None:
    with stage(story) as broker:
        seen = story.tell(broker, READERS[OURS])
        assert seen.holds, seen.said
        assert broker.faults == []

"""Topic filters that a person has written: the judgement of the broker, before it is asked."""

from headrace.native import AccessRules


def unshared(topic: str) -> str:
    """A filter without its `$share/GROUP/`."""
    parts = topic.split("/", 2)
    return parts[2] if parts[0] == "$share" and len(parts) == 3 else topic


def check_filter(topic: str) -> None:
    """Refuses what is no topic filter.

    Raises:
        ValueError: the message says what is wrong with it.
    """
    # A rule takes the same filters, but for braces, which are placeholders there.
    plain = unshared(topic).replace("{", "_").replace("}", "_")
    nothing: list[str] = []
    AccessRules(no_match=False).add(
        allows=True, actions=nothing, users=nothing, roles=nothing, clients=nothing,
        addresses=nothing, topics=[plain], streams=nothing, groups=nothing,
    )  # fmt: skip

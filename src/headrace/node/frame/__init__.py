"""The frame door: producers and consumers with a socket, a CRC and a line of JSON."""

from headrace.node.frame.door import FrameDoor, FrameSettings

__all__ = ["FrameDoor", "FrameSettings"]

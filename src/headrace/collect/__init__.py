"""The collector: GPU telemetry from where it is to a broker, each reading acknowledged once.

From file to wire, in the order of the data: `readings` reads CSV (with `labels` and `instants`
for their grammars), `replay` plays a trace for more GPUs or again, `messages` shapes topics and
payloads, `window` numbers them and knows what is outstanding, `link` is one MQTT connection,
`publish` the loop over connections. All but the last two are pure.

Two more origins go on for as long as they are let: `exporter` asks for pages (`scrape`), which
`exposition` reads, and `nvml` reads the GPUs of the machine (`nvml_fields`). They read in the
`background` and hand over through a `feed`; `conditions` decides what is said of their troubles.
"""

from headrace.collect.link import Origin
from headrace.collect.messages import Message, Pause, narrow, wide
from headrace.collect.publish import Publisher
from headrace.collect.readings import CsvFile, Reading
from headrace.collect.replay import Span, fleet, replayed
from headrace.collect.window import Counts

__all__ = [
    "Counts",
    "CsvFile",
    "Message",
    "Origin",
    "Pause",
    "Publisher",
    "Reading",
    "Span",
    "fleet",
    "narrow",
    "replayed",
    "wide",
]

"""What the real TensorBoard sees in a folder of event files, as one JSON document.

Used by a test of crates/runs: our reader agreeing with our writer would prove little.
"""

import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import graph_pb2
from tensorboard.util import tensor_util


def main(folder):
    seen = EventAccumulator(folder, size_guidance={"tensors": 0})
    seen.Reload()
    report = {"scalars": {}, "histograms": {}, "graph_nodes": 0, "plugins": set()}
    for tag in seen.Tags()["tensors"]:
        plugin = seen.SummaryMetadata(tag).plugin_data.plugin_name
        report["plugins"].add(plugin)
        events = seen.Tensors(tag)
        last = tensor_util.make_ndarray(events[-1].tensor_proto)
        if plugin == "scalars":
            report["scalars"][tag] = {
                "count": len(events),
                "last": [events[-1].step, float(last)],
            }
        elif plugin == "histograms":
            report["histograms"][tag] = {
                "count": len(events),
                "values": float(last[:, 2].sum()),
            }
    if seen.Tags()["graph"]:
        graph = seen.Graph()
        if isinstance(graph, bytes):
            graph = graph_pb2.GraphDef.FromString(graph)
        report["graph_nodes"] = len(graph.node)
    report["plugins"] = sorted(report["plugins"])
    json.dump(report, sys.stdout)


main(sys.argv[1])

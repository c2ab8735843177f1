"""Does TensorFlow read what `paceline-tfrecord` writes?

  check_tfrecord.py FOLDER     the folder that the example program `write_samples` filled

Prints one JSON line: {"ok": bool, "tensorflow": version, "checked": n, "failed": [what, ...]}; exit 0 if ok, else 1.
"""
import json, os, struct, sys
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

failed, checked = [], 0


def check(what, good):
    global checked
    checked += 1
    if not good:
        failed.append(what)


def bits(values):
    return [struct.pack("<f", v) for v in values]


def check_file(folder, name, compression):
    path = os.path.join(folder, f"{name}.tfrecord")
    records = [r.numpy() for r in tf.data.TFRecordDataset(path, compression_type=compression)]
    check(f"{name}: 1006 records, found {len(records)}", len(records) == 1006)
    if len(records) != 1006:
        return None
    feature = tf.train.Example.FromString(records[0]).features.feature
    names = {"bytes", "bytes/none", "floats", "floats/none", "ints", "ints/none", "unset", "größe/数/🌼", ""}
    check(f"{name}: feature names {sorted(feature)}", set(feature) == names)
    check(f"{name}: bytes", list(feature["bytes"].bytes_list.value) == [b"", b"\0\xff", b"text"])
    inf = float("inf")
    floats = list(feature["floats"].float_list.value)
    check(f"{name}: floats {floats}", len(floats) == 7 and np.isnan(floats[5])
          and bits(floats[:5] + floats[6:]) == bits([0.0, -0.0, 1.5, inf, -inf, 1e-45]))
    check(f"{name}: ints", list(feature["ints"].int64_list.value) == [0, 1, -1, 300, -2**63, 2**63 - 1])
    for key, kind in (("bytes/none", "bytes_list"), ("floats/none", "float_list"), ("ints/none", "int64_list"), ("unset", None)):
        check(f"{name}: {key}", feature[key].WhichOneof("kind") == kind
              and (kind is None or not getattr(feature[key], kind).value))
    check(f"{name}: unicode name", list(feature["größe/数/🌼"].int64_list.value) == [42])
    check(f"{name}: empty name", list(feature[""].int64_list.value) == [7])
    # The op that training pipelines use has a parser of its own.
    parsed = tf.io.parse_single_example(records[0], {
        "ints": tf.io.FixedLenFeature([6], tf.int64), "floats": tf.io.VarLenFeature(tf.float32),
        "bytes": tf.io.FixedLenFeature([3], tf.string)})
    check(f"{name}: parse_single_example ints", parsed["ints"].numpy().tolist() == [0, 1, -1, 300, -2**63, 2**63 - 1])
    check(f"{name}: parse_single_example floats", parsed["floats"].values.shape[0] == 7)
    check(f"{name}: parse_single_example bytes", parsed["bytes"].numpy().tolist() == [b"", b"\0\xff", b"text"])
    check(f"{name}: empty record", records[1] == b"")
    large = tf.train.Example.FromString(records[2]).features.feature["large"].bytes_list.value[0]
    check(f"{name}: large record", large == (np.arange(5_000_000, dtype=np.uint32) % 251).astype(np.uint8).tobytes())
    many = tf.train.Example.FromString(records[3]).features.feature
    check(f"{name}: 60,000 floats", np.array_equal(many["ramp"].float_list.value, np.arange(60_000) * 0.5))
    check(f"{name}: 50,000 ints", np.array_equal(many["squares"].int64_list.value, np.arange(50_000) ** 2 - 1000))
    sequence = tf.train.SequenceExample.FromString(records[4])
    lists = sequence.feature_lists.feature_list
    check(f"{name}: sequence context", list(sequence.context.feature["id"].int64_list.value) == [7])
    check(f"{name}: sequence lists", set(lists) == {"none", "tok"} and len(lists["none"].feature) == 0
          and [list(f.int64_list.value) for f in lists["tok"].feature] == [[1], [2, 3], []])
    check(f"{name}: record that is not an example", records[5] == b"not an example")
    small = [tf.train.Example.FromString(r).features.feature["i"].int64_list.value[0] for r in records[6:]]
    check(f"{name}: 1000 small records", small == list(range(1000)))
    return records


def main():
    folder = sys.argv[1]
    contents = []
    for name, compression in (("plain", ""), ("gzip", "GZIP"), ("zlib", "ZLIB")):
        try:
            contents.append(check_file(folder, name, compression))
        except Exception as error:      # a damaged file is a finding, not a crash of the check
            check(f"{name}: {type(error).__name__}: {str(error)[:200]}", False)
    check("plain, gzip and zlib hold the same records", len(contents) == 3 and contents[0] == contents[1] == contents[2])
    check("empty file has no records", not list(tf.data.TFRecordDataset(os.path.join(folder, "empty.tfrecord"))))
    # TensorFlow's own writer must make the same plain bytes from the same records.
    if contents and contents[0]:
        again = os.path.join(folder, "again.tfrecord")
        with tf.io.TFRecordWriter(again) as writer:
            for record in contents[0]:
                writer.write(record)
        with open(again, "rb") as ours, open(os.path.join(folder, "plain.tfrecord"), "rb") as theirs:
            check("TensorFlow writes the same bytes", ours.read() == theirs.read())
        os.remove(again)
    print(json.dumps({"ok": not failed, "tensorflow": tf.__version__, "checked": checked, "failed": failed}))
    return 1 if failed else 0


sys.exit(main())

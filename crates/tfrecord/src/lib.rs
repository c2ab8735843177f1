//! TFRecord files and tf.train.Example, exactly as TensorFlow writes them.

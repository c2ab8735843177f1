//! Photographs: decode, orient, resize, encode, safely and fast.

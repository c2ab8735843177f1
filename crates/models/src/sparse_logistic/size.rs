//! How large a feature's values are, in sixteen bits.
//!
//! A rule that measures every feature in its own size must remember that size beside the weight and its state, in the same eight
//! bytes, and a worker must tell it to a server with every gradient. A mean to two digits is enough for both.

/// The mean magnitude of some values of one feature, and of how many: twelve bits (seven of exponent, five of mantissa) and four.
///
/// Counting ends at [`Size::MOST`]: from then on the mean stays, so that the steps of a well-known feature do not sway with single
/// values. One that is far larger than all before begins a new mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size(u16);

/// Mantissa bits of a float that are left out.
const SHIFT: u32 = 18;
/// What the smallest mean has in a float's upper bits: 2^-64.
const LEAST: u32 = 63 << 5;
/// Sixteenfold, in units of a mean's last place.
const FAR: u16 = 4 << 5;
/// How many values the old mean counts for when one is far larger.
const AGAIN: u16 = 3;

impl Size {
    /// Values that a mean is made of at most.
    pub const MOST: u16 = 15;
    /// One value of magnitude 1.
    pub const ONE: Self = Self((64 << 5) << 4 | 1);

    /// Of one value; 0 says nothing about the size of the others.
    #[inline(always)]
    #[must_use]
    pub fn of(value: f32) -> Self {
        if value == 0.0 { Self(0) } else { Self::new(value, 1) }
    }

    /// A mean of so many values.
    #[inline(always)]
    #[must_use]
    pub fn new(mean: f32, count: u16) -> Self {
        let bits = mean.abs().to_bits() + (1 << (SHIFT - 1));
        let mean = (bits >> SHIFT).saturating_sub(LEAST).min(0xfff) as u16;
        Self(mean << 4 | count.min(Self::MOST))
    }

    /// The mean magnitude.
    #[inline(always)]
    #[must_use]
    pub fn mean(self) -> f32 {
        f32::from_bits((u32::from(self.0 >> 4) + LEAST) << SHIFT)
    }

    /// Of how many values, up to [`Size::MOST`].
    #[inline(always)]
    #[must_use]
    pub fn count(self) -> u16 {
        self.0 & 0xf
    }

    /// Whether the mean is 1, as far as it is kept.
    #[inline(always)]
    #[must_use]
    pub fn is_one(self) -> bool {
        self.0 >> 4 == Self::ONE.0 >> 4
    }

    /// The size of these values and of `later` ones.
    #[inline(always)]
    #[must_use]
    pub fn join(self, later: Self) -> Self {
        let (mut count, more) = (self.count(), later.count());
        if more == 0 {
            return self;
        }
        if count == Self::MOST {
            if later.0 >> 4 <= (self.0 >> 4).saturating_add(FAR) {
                return self;
            }
            count = AGAIN;
        }
        if count == 0 {
            return later;
        }
        let sum = f32::from(count) * self.mean() + f32::from(more) * later.mean();
        Self::new(sum / f32::from(count + more), count + more)
    }

    /// For a message or a slot.
    #[inline(always)]
    #[must_use]
    pub fn to_bits(self) -> u16 {
        self.0
    }

    /// Any bits are a size.
    #[inline(always)]
    #[must_use]
    pub fn from_bits(bits: u16) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_kept_to_two_digits_over_the_whole_range() {
        for exponent in -60..60 {
            for mantissa in [1.0, 1.01, 1.3, 1.77, 1.99] {
                let value = mantissa * (exponent as f32).exp2();
                let size = Size::of(-value);
                assert!((size.mean() / value - 1.0).abs() <= 1.0 / 63.0, "{value} {size:?}");
                assert_eq!((size.count(), Size::from_bits(size.to_bits())), (1, size));
            }
        }
        assert_eq!((Size::of(1.0), Size::ONE.mean(), Size::of(0.0).count()), (Size::ONE, 1.0, 0));
        for extreme in [f32::MIN_POSITIVE, 1e-45, f32::MAX] {
            assert!(Size::of(extreme).mean().is_finite() && Size::of(extreme).mean() > 0.0);
        }
    }

    #[test]
    fn a_size_is_the_mean_of_the_first_values_until_one_is_far_larger() {
        let size = [1.0, 3.0, 2.0, 6.0].map(Size::of).into_iter().reduce(Size::join).unwrap();
        assert!((size.mean() - 3.0).abs() < 0.1 && size.count() == 4, "{size:?}");
        let full = (0..50).map(|_| Size::of(3.0)).fold(size, Size::join);
        assert_eq!(full.count(), Size::MOST);
        assert_eq!(full.join(Size::of(40.0)), full, "settled");
        assert_eq!(full.join(Size::of(0.0)), full);
        let grown = full.join(Size::of(3000.0));
        assert!(grown.mean() > 700.0 && grown.count() == 4, "{grown:?}");
    }
}

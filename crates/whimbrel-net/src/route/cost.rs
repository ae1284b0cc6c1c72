//! The cost of a link.

use whimbrel_wire::LOSS_MAX;

/// Cost of each hop beside its delay, microseconds: so that of two paths with much the same delay
/// the one with fewer hops is taken.
pub const HOP_COST_US: u64 = 300;

/// A greater loss counts as this, thousandths: a link that always loses would have infinite cost.
pub const LOSS_COUNTED_MAX: u16 = 999;

/// The cost of a link that loses everything, beside that of its delay, microseconds: any path
/// without such a link is taken before.
pub const DARK_COST_US: u64 = 10_000_000;

/// The cost of sending over a link of this delay (microseconds) and loss (thousandths),
/// microseconds: its delay, [`HOP_COST_US`], and the delay again
/// for each repetition that its loss makes necessary on average, which is loss / (1 - loss);
/// [`DARK_COST_US`] more if everything is lost.
pub fn cost_us(delay_us: u32, loss: u16) -> u64 {
    let dark = if loss >= LOSS_MAX { DARK_COST_US } else { 0 };
    let (delay, loss) = (u64::from(delay_us), u64::from(loss.min(LOSS_COUNTED_MAX)));
    delay + HOP_COST_US + delay * loss / (1_000 - loss) + dark
}

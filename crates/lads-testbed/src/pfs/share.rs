//! Divides a server's rate among its busy OSTs: max-min fair shares.

/// Divides `total` among the askers. None gets more than it asks for; otherwise all get the same,
/// and what one leaves over goes to the others. Any unit is possible; infinity means no limit.
pub(super) fn max_min(asked: &[f64], total: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..asked.len()).collect();
    order.sort_by(|&a, &b| asked[a].total_cmp(&asked[b]));
    let mut given = vec![0.0; asked.len()];
    let mut left = total;
    for (place, &asker) in order.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "there are few OSTs")]
        let fair = left / (asked.len() - place) as f64;
        given[asker] = asked[asker].min(fair);
        if left.is_finite() {
            left -= given[asker];
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::max_min;

    #[test]
    fn those_who_ask_for_little_get_it_and_the_others_share_the_rest() {
        assert_eq!(max_min(&[10.0, 50.0, 50.0], 90.0), [10.0, 40.0, 40.0]);
        assert_eq!(max_min(&[50.0, 20.0, 50.0], 90.0), [35.0, 20.0, 35.0]);
    }

    #[test]
    fn all_get_what_they_ask_for_if_there_is_enough() {
        assert_eq!(max_min(&[10.0, 50.0], 60.0), [10.0, 50.0]);
        assert_eq!(max_min(&[10.0, 50.0], f64::INFINITY), [10.0, 50.0]);
    }

    #[test]
    fn those_without_limit_share_evenly() {
        assert_eq!(max_min(&[f64::INFINITY, f64::INFINITY], 90.0), [45.0, 45.0]);
        assert_eq!(max_min(&[f64::INFINITY], f64::INFINITY), [f64::INFINITY]);
        assert!(max_min(&[], 90.0).is_empty());
    }

    #[test]
    fn a_server_that_stands_still_gives_nothing() {
        assert_eq!(max_min(&[10.0, f64::INFINITY], 0.0), [0.0, 0.0]);
    }
}

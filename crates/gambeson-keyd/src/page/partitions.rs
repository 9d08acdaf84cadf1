//! The site's partitions that are kept here: their names, which are all that is in clear.

use maud::{Markup, html};

pub(super) fn page(names: &[String]) -> Markup {
    html! {
        p { "Partitions are kept sealed. Their members are on the authority's host: " code { "gambeson partition show" } "." }
        table {
            thead { tr { th { "Partition" } } }
            tbody { @for name in names { tr { td data-th="Partition" { (name) } } } }
        }
    }
}

//! A site's authority: it certifies hosts and people for a few days at a time.

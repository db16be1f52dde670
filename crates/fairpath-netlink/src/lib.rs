//! Links and their changes, over rtnetlink.

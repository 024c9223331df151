//! A cluster that may end and be created again under its name.

use crate::Observer;
use obol_fabric::Name;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::{fs, io};

/// Opens a cluster when it is needed, and again when it was created anew.
pub struct Source {
    root: PathBuf,
    cluster: Name,
    set_up: fn(Observer) -> Observer,
    /// With the number of its directory.
    open: Option<(u64, Observer)>,
}

impl Source {
    /// A cluster by its place; `set_up` is applied to every new observer of it.
    pub fn new(root: PathBuf, cluster: Name, set_up: fn(Observer) -> Observer) -> Self {
        Self { root, cluster, set_up, open: None }
    }

    /// The name of the cluster.
    pub const fn cluster(&self) -> Name {
        self.cluster
    }

    /// The observer of the cluster that is there now, and whether it is a new one; or why there is
    /// none, and what to do.
    pub fn observer(&mut self) -> Result<(&mut Observer, bool), String> {
        let open = |this: &Self| Observer::open(&this.root, this.cluster).map_err(|error| error.to_string());
        let inode = match self.inode() {
            Ok(inode) => inode,
            Err(_) => {
                self.open = None;
                let why = open(self).err();
                return Err(why.unwrap_or_else(|| format!("cluster {} is being created", self.cluster)));
            }
        };
        let is_new = self.open.as_ref().is_none_or(|(known, _)| *known != inode);
        if is_new {
            self.open = None;
            self.open = Some((inode, (self.set_up)(open(self)?)));
        }
        match &mut self.open {
            Some((_, observer)) => Ok((observer, is_new)),
            None => Err(format!("cluster {} is not open", self.cluster)),
        }
    }

    fn inode(&self) -> io::Result<u64> {
        Ok(fs::metadata(self.root.join(self.cluster.as_str()))?.ino())
    }
}

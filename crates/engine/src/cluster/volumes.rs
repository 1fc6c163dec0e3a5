//! x
use super::Cluster; use crate::ids::*; use crate::cluster::node::When; use crate::verdict::*;
impl Cluster { 
 pub(crate) fn has_volumes(&self,_:PodIdx)->bool{false}
 pub(crate) fn place_volumes(&mut self,_:PodIdx,_:NodeIdx){} pub(crate) fn lift_volumes(&mut self,_:PodIdx,_:NodeIdx){}
 pub(crate) fn storage_fits(&self,_:PodIdx,_:NodeIdx,_:When,_:bool)->bool{true}
 pub(crate) fn volumes_refusal(&self,_:PodIdx,_:NodeIdx,_:bool)->Option<NodeMiss>{None}
 pub(crate) fn volumes_check(&self,_:PodIdx)->Result<(),PodMiss>{Ok(())}
}